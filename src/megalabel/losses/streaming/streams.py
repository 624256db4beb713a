"""Three kinds of row state, one class each: none, a log-sum-exp, a running top-k.

Each calls a small differentiable function of its loss, so that the formula of a loss is
written once for the plain and the streamed form.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import torch

from megalabel.losses.base import NONE, finite, row_max, row_sum, spread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from megalabel.ranks import Ranks
    from megalabel.types import Positives


def wide(like: Tensor) -> torch.dtype:
    """Return the type in which row state is summed: float64 if the device supports it."""
    return torch.float32 if like.device.type == "mps" else torch.float64


def leaf(tensor: Tensor) -> Tensor:
    """Return a copy that is a leaf of a new autograd graph."""
    return tensor.detach().clone().requires_grad_()


def no_cells() -> tuple[Tensor, Tensor, Tensor]:
    """Return empty rows, columns and values."""
    none = torch.empty(0, dtype=torch.int64)
    return none, none, torch.empty(0)


class Scratch:
    """A buffer for the temporary values of a block, grown when needed."""

    def __init__(self) -> None:
        self._flat: Tensor | None = None

    def like(self, block: Tensor) -> Tensor:
        """Return a contiguous uninitialised tensor of the block's shape and type."""
        return self.shaped(block.shape, block)

    def shaped(self, shape: Sequence[int], like: Tensor) -> Tensor:
        """Return a contiguous tensor of this shape, of the type and on the device of ``like``."""
        size = math.prod(shape)
        if self._flat is None or self._flat.numel() < size:
            self._flat = torch.empty(size, dtype=like.dtype, device=like.device)
        return self._flat[:size].view(*shape)


class _Separable(Protocol):
    def _negative_sum(self, block: Tensor, scratch: Tensor) -> Tensor: ...
    def _negative_gradient(self, scores: Tensor) -> Tensor: ...
    def _positive(self, positives: Positives) -> Tensor: ...


class SeparableStream:
    """Row losses that are sums over cells: the sum is the only state.

    The loss has ``_negative_sum(block, scratch)`` [B], the sum of the terms of the negatives,
    0 for a cell at -inf; ``_negative_gradient(block)``, the derivative of each term, which may
    overwrite the block; and ``_positive(positives)`` [n], the differentiable terms of the
    positives.
    """

    separable = True
    sparse = False

    def __init__(self, loss: _Separable, positives: Positives, ranks: Ranks) -> None:
        self._loss, self._ranks = loss, ranks
        self._scratch = Scratch()
        scores = leaf(positives.scores)
        with torch.enable_grad():
            terms = loss._positive(replace(positives, scores=scores))
            (self._gradient,) = torch.autograd.grad(terms.sum(), scores)
        self._rows = row_sum(positives, terms.detach().to(wide(terms)))
        self._type = scores.dtype

    def update(self, block: Tensor, start: int) -> None:
        """Add the terms of a block of negatives."""
        self._rows += self._loss._negative_sum(block, self._scratch.like(block))

    def more(self) -> bool:
        """One pass is enough."""
        return False

    def finish(self) -> Tensor:
        """Return the row losses."""
        return self._ranks.sum(self._rows).to(self._type)

    def positive_gradient(self) -> Tensor:
        """Gradient for the positives."""
        return self._gradient

    def block_gradient(self, block: Tensor) -> Tensor:
        """Gradient for a block of negatives."""
        return self._loss._negative_gradient(block)

    def sparse_gradient(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return no cells: the whole gradient is in the blocks."""
        return no_cells()


class _FromLse(Protocol):
    def _from_lse(self, lse: Tensor, positives: Positives, share: Tensor) -> Tensor: ...


class LogSumExpStream:
    """Row losses that see the negatives only through one log-sum-exp per row.

    The loss has ``_from_lse(lse, positives, share)`` [n], one differentiable term per
    positive. ``inside`` [n] are the scores with which the positives enter the sum, or None
    if they do not. State: a running maximum and the sum of exponentials relative to it.
    """

    separable = False
    sparse = False

    def __init__(
        self, loss: _FromLse, positives: Positives, ranks: Ranks, share: Tensor, inside: Tensor | None
    ) -> None:
        self._loss, self._positives, self._ranks = loss, positives, ranks
        self._share, self._inside = share, inside
        self._scratch = Scratch()
        if inside is None:
            self._top = positives.scores.new_full((positives.shape[0],), NONE)
            self._total = torch.zeros_like(self._top, dtype=wide(self._top))
        else:
            self._top = row_max(positives, inside)
            below = (inside - spread(positives, finite(self._top))).exp()
            self._total = row_sum(positives, below.to(wide(below)))

    def update(self, block: Tensor, start: int) -> None:
        """Update the running maximum and add the block's exponentials."""
        top = torch.maximum(self._top, block.amax(1))
        level = finite(top)
        below = torch.sub(block, level[:, None], out=self._scratch.like(block)).exp_()
        self._total.mul_((self._top - level).exp_()).add_(below.sum(1))
        self._top = top

    def more(self) -> bool:
        """Merge over ranks; one pass is enough."""
        top = self._ranks.max(self._top)
        level = finite(top)
        total = self._ranks.sum(self._total * (self._top - level).exp())
        self._lse = (total.log() + level).to(top.dtype)
        return False

    def finish(self) -> Tensor:
        """Return the row losses; keep the slopes for both gradients."""
        lse, scores = leaf(self._lse), leaf(self._positives.scores)
        with torch.enable_grad():
            positives = replace(self._positives, scores=scores)
            terms = self._loss._from_lse(lse, positives, self._share)
            slope, direct = torch.autograd.grad(terms.sum(), (lse, scores))
        self._slope = self._ranks.sum(slope)[:, None]
        self._level = finite(self._lse)[:, None]
        if self._inside is not None:
            pull = (self._inside - spread(self._positives, self._level[:, 0])).exp_()
            direct = direct + pull * spread(self._positives, self._slope[:, 0])
        self._gradient = direct
        return self._ranks.sum(row_sum(self._positives, terms.detach()))

    def positive_gradient(self) -> Tensor:
        """Gradient for the positives."""
        return self._gradient

    def block_gradient(self, block: Tensor) -> Tensor:
        """Return slope x exp(s - lse), in place."""
        return block.sub_(self._level).exp_().mul_(self._slope)

    def sparse_gradient(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return no cells: the whole gradient is in the blocks."""
        return no_cells()


class _FromTop(Protocol):
    def _from_top(self, top: Tensor, positives: Positives, share: Tensor) -> tuple[Tensor, Tensor]: ...


class TopStream:
    """Row losses that see only the k highest negatives.

    The loss has ``_from_top(top, positives, share)``: differentiable terms of the positives
    [n] and of the negatives [B, k] (zeros if it has none). ``top`` [B, k] is sorted, -inf where
    a row has fewer than k negatives; ``share`` [n] is handed through. Ties at rank k are broken by the order of
    the columns.
    """

    separable = False
    sparse = True

    def __init__(self, loss: _FromTop, positives: Positives, ranks: Ranks, k: int, share: Tensor) -> None:
        self._loss, self._positives, self._ranks, self._k = loss, positives, ranks, k
        self._share = share
        self._top = positives.scores.new_full((positives.shape[0], k), NONE)
        self._cols = torch.zeros_like(self._top, dtype=torch.int64)

    def update(self, block: Tensor, start: int) -> None:
        """Merge the highest scores of the block, for the rows where they exceed the lowest of the top k."""
        rows = (block.amax(1) > self._top[:, -1]).nonzero()[:, 0]
        if rows.numel() == 0:
            return
        values, places = block.index_select(0, rows).topk(min(self._k, block.shape[1]), 1)
        values = torch.cat([self._top.index_select(0, rows), values], 1)
        places = torch.cat([self._cols.index_select(0, rows), places + start], 1)
        values, order = values.topk(self._k, 1)
        self._top.index_copy_(0, rows, values)
        self._cols.index_copy_(0, rows, places.gather(1, order))

    def more(self) -> bool:
        """One pass is enough."""
        return False

    def finish(self) -> Tensor:
        """Return the row losses; keep the gradients of the top k."""
        mine, world, count = self._ranks.rank, self._ranks.world, len(self._top)
        tops = self._ranks.gather(self._top, [count] * world).view(world, count, self._k)
        values, order = tops.transpose(0, 1).reshape(count, world * self._k).topk(self._k, 1)
        top, scores = leaf(values), leaf(self._positives.scores)
        with torch.enable_grad():
            positives = replace(self._positives, scores=scores)
            terms, negative_terms = self._loss._from_top(top, positives, self._share)
            slope, self._gradient = torch.autograd.grad(
                terms.sum(), (top, scores), retain_graph=True, materialize_grads=True
            )
            direct = torch.zeros_like(top)
            if negative_terms.requires_grad:
                (direct,) = torch.autograd.grad(negative_terms.sum(), top)
        slope = self._ranks.sum(slope) + direct  # every rank has the same terms of negatives
        held = (order // self._k == mine) & (values > NONE)
        self._rows = held.nonzero()[:, 0]
        self._values = slope[held]
        self._places = self._cols.gather(1, (order - mine * self._k).clamp_(0, self._k - 1))[held]
        return self._ranks.sum(row_sum(self._positives, terms.detach())) + negative_terms.detach().sum(1)

    def positive_gradient(self) -> Tensor:
        """Gradient for the positives."""
        return self._gradient

    def block_gradient(self, block: Tensor) -> Tensor:
        """Return zeros: the whole gradient is in single cells."""
        return block.zero_()

    def sparse_gradient(self) -> tuple[Tensor, Tensor, Tensor]:
        """Gradient for the k highest negatives of each row."""
        return self._rows, self._places, self._values
