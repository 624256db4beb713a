"""The sum of weighted table rows of each text, with a gradient for the rows of the step only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from scipy.sparse import csr_matrix
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn.functional import embedding_bag

if TYPE_CHECKING:
    from megalabel.types import Tokens

__all__ = ["weighted_bag"]

_BLOCK = 4_096  # rows of a block that stays in the processor's cache


def weighted_bag(table: Tensor, weights: Tensor, tokens: Tokens) -> tuple[Tensor, Tensor]:
    r"""Return s [n, d] and q [n] of the texts.

    .. math:: s_i = \sum_{t \in \text{text}_i} w_t V_t, \qquad q_i = \sum_{t \in \text{text}_i} w_t^2

    for the table V [R, d] and weights w [R]. With G_t the sum of the gradients of s over
    the places where row t stands, the gradient of V_t is w_t G_t and that of w_t is
    V_t . G_t + 2 w_t sum(gradients of q): one transposed bag serves both. Gradients are
    sparse, with each distinct row once, in ascending order, and the same bit for bit in
    every run with the same number of threads. (``torch`` forgets that such a gradient is
    coalesced when it becomes ``.grad``; an optimiser that sees ascending rows need not sort.)

    >>> import numpy as np, torch
    >>> from megalabel.types import Tokens
    >>> table, weights = torch.eye(3).requires_grad_(), torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    >>> sums, squares = weighted_bag(table, weights, Tokens(np.array([0, 2, 2], np.uint8), np.array([0, 3, 3])))
    >>> sums.tolist(), squares.tolist()
    ([[1.0, 0.0, 6.0], [0.0, 0.0, 0.0]], [19.0, 0.0])
    >>> sums.sum().backward()
    >>> table.grad._indices().tolist()
    [[0, 2]]
    """
    sums, squares = _WeightedBag.apply(table, weights, tokens)  # type: ignore[no-untyped-call]
    return sums, squares


class _WeightedBag(Function):
    @staticmethod
    def forward(ctx: Any, table: Tensor, weights: Tensor, tokens: Tokens) -> tuple[Tensor, Tensor]:
        ctx.tokens = tokens
        ctx.save_for_backward(table, weights)
        ids = torch.from_numpy(tokens.ids.astype(np.int64)).to(table.device)
        offsets = torch.from_numpy(np.array(tokens.offsets)).to(table.device)  # mapped ones cannot be written
        chosen = weights.index_select(0, ids)
        sums = embedding_bag(ids, table, offsets, mode="sum", include_last_offset=True, per_sample_weights=chosen)
        return sums, _segment_sum(chosen.square(), offsets)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, sums: Tensor, squares: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        table, weights = ctx.saved_tensors
        found, texts, offsets = (torch.from_numpy(part).to(table.device) for part in _transposed(ctx.tokens, table))
        gradient = embedding_bag(texts, sums.contiguous(), offsets, mode="sum", include_last_offset=True)  # G, [U, d]
        chosen = weights.index_select(0, found)
        of_weights = 2 * chosen * _segment_sum(squares.index_select(0, texts), offsets)
        for start in range(0, len(found), _BLOCK):
            block = slice(start, start + _BLOCK)
            of_weights[block] += torch.linalg.vecdot(gradient[block], table.index_select(0, found[block]))
        gradient *= chosen.unsqueeze(1)
        return _sparse(found, gradient, table), _sparse(found, of_weights, weights), None


def _transposed(tokens: Tokens, table: Tensor) -> tuple[Any, Any, Any]:
    """Return the distinct rows [U], and ragged by row (texts, offsets) where each of them stands."""
    present = np.zeros(len(table), dtype=bool)
    present[tokens.ids] = True
    found = np.flatnonzero(present)
    place = np.empty(len(table), dtype=np.int64)
    place[found] = np.arange(len(found))
    ones = np.ones(len(tokens.ids), dtype=np.int8)
    by_row = csr_matrix((ones, place[tokens.ids], tokens.offsets), shape=(len(tokens), len(found))).tocsc()
    return found, by_row.indices.astype(np.int64), by_row.indptr.astype(np.int64)


def _segment_sum(values: Tensor, offsets: Tensor) -> Tensor:
    """Add up the values [m] of each part; an empty part gives 0."""
    places = torch.arange(len(values), device=values.device)
    return embedding_bag(places, values.unsqueeze(1), offsets, mode="sum", include_last_offset=True).squeeze(1)


def _sparse(found: Tensor, values: Tensor, like: Tensor) -> Tensor:
    return torch.sparse_coo_tensor(
        found.unsqueeze(0), values, like.shape, is_coalesced=True, check_invariants=False, dtype=like.dtype
    )
