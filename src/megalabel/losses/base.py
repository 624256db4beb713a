"""Shared by all losses: unmasked cells, sums over the positives of a row, reduction of the row losses."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, Literal, get_args

import torch

from megalabel.errors import DataError, SettingError, nearest
from megalabel.ranks import ALONE, Ranks
from megalabel.types import Positives, Targets

if TYPE_CHECKING:
    from torch import Tensor

    from megalabel.types import Stream

REDUCTIONS = ("mean", "sum", "none", "cells")
Weighting = Literal["mean", "count", "sum"]  # of the positives of a row: y / sum(y), y / |P| or y
WEIGHTINGS: tuple[str, ...] = get_args(Weighting)
NONE = float("-inf")  # the score of a masked cell


def choose(name: str, value: str, valid: tuple[str, ...]) -> None:
    """Raise :class:`SettingError` with the nearest valid name if ``value`` is not one of ``valid``."""
    if value not in valid:
        raise SettingError(f"{name} is {value!r}", remedy=nearest(str(value), valid))


def require(ok: bool, what: str, remedy: str) -> None:
    """Raise :class:`SettingError` unless ``ok``."""
    if not ok:
        raise SettingError(what, remedy=remedy)


# ------------------------------------------------------------------ cells of a block


def widen(scores: Tensor) -> Tensor:
    """Return half-precision scores in float32, others unchanged: sums are taken in at least float32."""
    return scores.float() if scores.dtype in (torch.float16, torch.bfloat16) else scores


def check_mask(mask: Tensor, shape: tuple[int, int]) -> Tensor:
    """Return a bool mask that broadcasts to ``shape`` as a view of that shape."""
    if mask.dtype is not torch.bool:
        raise DataError(f"the mask has type {mask.dtype}", remedy="pass a bool tensor, True where the cell takes part")
    try:
        return mask.expand(shape)
    except RuntimeError:
        raise DataError(f"the mask has shape {tuple(mask.shape)}, the scores {shape}") from None


def count_cells(shape: tuple[int, int], mask: Tensor | None) -> int:
    """Return the number of unmasked cells of a block [B, P]."""
    return shape[0] * shape[1] if mask is None else int(mask.expand(shape).sum())


def find_positives(
    targets: Tensor | Targets, shape: tuple[int, int], like: Tensor, mask: Tensor | None = None
) -> Positives:
    """Return the unmasked positive cells, with empty scores.

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
    scores: Tensor, targets: Tensor | Targets, mask: Tensor | None = None, log_q: Tensor | None = None
) -> tuple[Tensor, Positives]:
    """Split scores [B, P] into negatives [B, P], -inf where a cell is positive or masked, and the sparse positives.

    ``log_q`` [P] is subtracted from the scores of negatives only. Both parts carry gradient;
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


# ------------------------------------------------------- sums over rows and positives


def row_sum(positives: Positives, terms: Tensor) -> Tensor:
    """Return the sum of the terms of each row's positives: [n] -> [B]."""
    return terms.new_zeros(positives.shape[0]).index_add(0, positives.rows, terms)


def row_max(positives: Positives, terms: Tensor) -> Tensor:
    """Return the largest term of each row, -inf for a row without positives: [n] -> [B]."""
    return terms.new_full((positives.shape[0],), NONE).scatter_reduce(0, positives.rows, terms, "amax")


def spread(positives: Positives, per_row: Tensor) -> Tensor:
    """Return the value of its row for each positive: [B] -> [n]."""
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


def shares(positives: Positives, ranks: Ranks = ALONE, how: str = "mean") -> Tensor:
    """Return the share of each positive in its row's loss [n].

    That is y / sum(y) for ``mean``, y / |P| for ``count`` and y for ``sum``; sum(y) and |P| are those of the row.
    """
    if how == "sum":
        return positives.values
    weights = torch.ones_like(positives.values) if how == "count" else positives.values
    return positives.values / spread(positives, ranks.sum(row_sum(positives, weights)))


# ------------------------------------------------------------------------- row losses


def divisor(reduction: str, rows: int, cells: int) -> int:
    """Return what the sum of row losses is divided by, given the numbers of rows and unmasked cells; never 0."""
    return max(1, {"mean": rows, "sum": 1, "cells": cells}[reduction])


@dataclass(frozen=True)
class RowLoss(ABC):
    """Base class of a loss that is one number per row, reduced over rows; subclasses define ``_rows`` and ``begin``.

    ``reduction`` is the ``mean`` over rows, their ``sum``, ``none``, or ``cells``: their sum divided by the number of
    cells that take part, which for a loss that is a sum over labels is the mean over rows and labels.

    ``raises_positives`` says that a step along the negative gradient never lowers the score of a positive,
    ``lowers_negatives`` that it never raises the score of a negative.
    """

    reduction: str = field(default="mean", kw_only=True)

    raises_positives: ClassVar[bool] = False
    lowers_negatives: ClassVar[bool] = False
    takes_log_q: ClassVar[bool] = True

    def __post_init__(self) -> None:
        choose("reduction", self.reduction, REDUCTIONS)

    def __call__(
        self,
        scores: Tensor,
        targets: Tensor | Targets,
        mask: Tensor | None = None,
        *,
        log_q: Tensor | None = None,
    ) -> Tensor:
        """Return the loss of a block of scores.

        Args:
            scores: [B, P], already divided by the temperature; half precision is summed in float32.
            targets: dense [B, P] or :class:`megalabel.types.Targets`; values in (0, 1], 0 is a negative.
            mask: [B, P] bool (or what broadcasts to it); False removes the cell.
            log_q: [P], log of the probability that the label is in the pool; subtracted from the scores of negatives.

        Returns:
            A scalar, or [B] with ``reduction="none"``.
        """
        if log_q is not None:
            self.check_log_q()
        negatives, positives = split(scores, targets, mask, log_q)
        rows = self._rows(negatives, positives)
        if self.reduction == "none":
            return rows
        cells = count_cells(positives.shape, mask) if self.reduction == "cells" else 0
        return rows.sum() / divisor(self.reduction, rows.shape[0], cells)

    @abstractmethod
    def begin(self, positives: Positives, ranks: Ranks) -> Stream:
        """Start the streamed form; the positives are those of this rank's labels."""

    def check_log_q(self) -> None:
        """Raise :class:`SettingError` if the loss does not take ``log_q``."""
        require(
            self.takes_log_q,
            f"{type(self).__name__} takes cosines, which log_q would move out of range",
            "leave log_q out, or choose a loss on free scores",
        )

    @abstractmethod
    def _rows(self, negatives: Tensor, positives: Positives) -> Tensor: ...
