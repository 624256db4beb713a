"""Cells of a score block: which take part, which are positive, and sums over the rows of a sparse few."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from megalabel.errors import DataError
from megalabel.types import Positives, Targets

if TYPE_CHECKING:
    from torch import Tensor

NONE = float("-inf")  # the score of a cell that takes no part


def widen(scores: Tensor) -> Tensor:
    """Return half-precision scores in float32, others as they are: every sum is taken in float32 at least."""
    return scores.float() if scores.dtype in (torch.float16, torch.bfloat16) else scores


def check_mask(mask: Tensor, shape: tuple[int, int]) -> Tensor:
    """Return a bool mask that broadcasts to ``shape`` as a view of that shape."""
    if mask.dtype is not torch.bool:
        raise DataError(f"the mask has type {mask.dtype}", remedy="pass a bool tensor, True where the cell takes part")
    try:
        return mask.expand(shape)
    except RuntimeError:
        raise DataError(f"the mask has shape {tuple(mask.shape)}, the scores {shape}") from None


def find_positives(
    targets: Tensor | Targets,
    shape: tuple[int, int],
    like: Tensor,
    mask: Tensor | None = None,
) -> Positives:
    """List the positive cells that take part; their scores are still to be filled in.

    Args:
        targets: dense [B, P] or sparse; a cell above zero is a positive.
        shape: (B, P) of the scores.
        like: a tensor whose type and device the values take.
        mask: [B, P] bool or None.
    """
    if tuple(targets.shape) != shape:
        raise DataError(f"targets have shape {tuple(targets.shape)}, scores {shape}")
    if isinstance(targets, Targets):
        rows, cols, values = (part.to(like.device) for part in (targets.rows, targets.cols, targets.values))
        keep = values > 0
    else:
        rows, cols = (targets > 0).nonzero(as_tuple=True)
        values = targets[rows, cols]
        keep = torch.ones_like(rows, dtype=torch.bool)
    if mask is not None:
        keep = keep & mask[rows, cols]
    rows, cols, values = rows[keep], cols[keep], values[keep].to(like.dtype)
    return Positives(rows, cols, values, torch.empty_like(values), shape)


def split(
    scores: Tensor,
    targets: Tensor | Targets,
    mask: Tensor | None = None,
    log_q: Tensor | None = None,
) -> tuple[Tensor, Positives]:
    """Split scores [B, P] into negatives [B, P], -inf where a cell is positive or masked, and the sparse positives.

    ``log_q`` [P] is taken from the scores of negatives only. Both parts carry gradient;
    index_select is used because, unlike indexing, its backward is repeatable.
    """
    if scores.dim() != 2:
        raise DataError(
            f"scores have shape {tuple(scores.shape)}", remedy="pass one row per query, one column per label"
        )
    shape = (scores.shape[0], scores.shape[1])
    scores = widen(scores)
    mask = None if mask is None else check_mask(mask, shape)
    positives = find_positives(targets, shape, scores, mask)
    flat = positives.rows * shape[1] + positives.cols
    positives = replace(positives, scores=scores.reshape(-1).index_select(0, flat))
    out = torch.zeros(shape, dtype=torch.bool, device=scores.device) if mask is None else (~mask).contiguous()
    out.view(-1).index_fill_(0, flat, True)
    shifted = scores if log_q is None else scores - log_q.to(scores)
    return shifted.masked_fill(out, NONE), positives


def row_sum(positives: Positives, terms: Tensor) -> Tensor:
    """Add up one term per positive over each row: [n] -> [B]."""
    return terms.new_zeros(positives.shape[0]).index_add(0, positives.rows, terms)


def row_max(positives: Positives, terms: Tensor) -> Tensor:
    """Return the largest term of each row, -inf for a row without positives: [n] -> [B]."""
    return terms.new_full((positives.shape[0],), NONE).scatter_reduce(0, positives.rows, terms, "amax")


def spread(positives: Positives, per_row: Tensor) -> Tensor:
    """Give each positive the value of its row: [B] -> [n]."""
    return per_row.index_select(0, positives.rows)


def finite(per_row: Tensor) -> Tensor:
    """Return 0 for -inf, so that a difference with it stays a number."""
    return per_row.masked_fill(per_row == NONE, 0.0)


def logsumexp(block: Tensor) -> Tensor:
    """Return log-sum-exp over columns [B, w] -> [B]: -inf with zero gradient, not NaN, for a row of -inf."""
    if block.shape[1] == 0:
        return block.sum(1) + NONE
    empty = block.detach().amax(1) == NONE
    if bool(empty.any()):
        block = block.masked_fill(empty[:, None], 0.0)
    return torch.logsumexp(block, 1).masked_fill(empty, NONE)


def row_logsumexp(positives: Positives, terms: Tensor) -> Tensor:
    """Return log-sum-exp of the terms of each row: [n] -> [B], -inf for a row without positives."""
    top = finite(row_max(positives, terms.detach()))
    total = row_sum(positives, (terms - spread(positives, top)).exp())
    empty = total.detach() == 0
    return (total.masked_fill(empty, 1.0).log() + top).masked_fill(empty, NONE)
