"""Compute scores in blocks of columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from megalabel.losses.base import NONE
from megalabel.losses.streaming.streams import Scratch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from megalabel.types import Positives

CACHE = 8 << 20  # bytes of a block of scores: fits the last-level cache, and is wide enough for fast products
BUDGET = 160 << 20  # default bytes of working memory


@dataclass(frozen=True)
class Plan:
    """How the columns are cut: ``width`` of a block, ``keep`` blocks whose scores are stored between passes."""

    width: int
    keep: int

    @classmethod
    def make(cls, rows: int, itemsize: int, block: int | None, budget: int | None) -> Plan:
        """Choose blocks that stay in cache, and keep as many of them as the budget allows.

        Four blocks are reserved: the current scores, two scratch buffers, a sum.
        """
        column = max(1, rows) * itemsize
        budget = BUDGET if budget is None else budget
        if block is None:
            block = max(64, min(CACHE, budget // 4) // column // 64 * 64)
        return cls(block, max(0, budget // (block * column) - 4))


@dataclass(frozen=True)
class Problem:
    """Scores = queries @ labels.T + bias, without the masked cells.

    ``queries`` are already divided by the temperature and have the type of the sums;
    products run in ``kind``, which may be a half-precision type.
    """

    queries: Tensor  # [B, d]
    labels: Tensor  # [P, d]
    bias: Tensor | None  # [P]
    log_q: Tensor | None  # [P]
    mask: Tensor | None  # [B, P] bool
    positives: Positives  # sorted by column
    kind: torch.dtype


@dataclass(frozen=True)
class Block:
    """Columns ``start`` to ``start + w``: scores of the negatives, -inf where a cell is positive or masked."""

    start: int
    labels: Tensor  # [w, d] in the type of products
    scores: Tensor  # [B, w] in the type of sums
    places: Tensor  # flat index in the block of each of its positives
    first: int  # its positives are first to last of the problem
    last: int


class Blocks:
    """Iterates over the columns; the first ``keep`` blocks of scores are computed once, the others in each pass."""

    def __init__(self, problem: Problem, plan: Plan, keep: bool) -> None:
        self._problem, self._width = problem, plan.width
        self._keep = plan.keep if keep else 0
        self._kept: dict[int, Tensor] = {}
        self._buffer = Scratch()
        self._queries = problem.queries.to(problem.kind)
        self._shift = _difference(problem.bias, problem.log_q, problem.queries)
        count = problem.labels.shape[0]
        self._starts = list(range(0, count, plan.width))
        cols = problem.positives.cols
        self._cuts = torch.searchsorted(cols, torch.tensor([*self._starts, count], device=cols.device)).tolist()

    def walk(self, last: bool = False) -> Iterator[Block]:
        """Yield the blocks in order; only in the ``last`` pass may their scores be overwritten."""
        positives = self._problem.positives
        for number, start in enumerate(self._starts):
            labels = self._problem.labels[start : start + self._width].to(self._problem.kind)
            first, end = self._cuts[number], self._cuts[number + 1]
            places = positives.rows[first:end] * labels.shape[0] + (positives.cols[first:end] - start)
            scores = self._kept.pop(number, None) if last else self._kept.get(number)
            if scores is None:
                scores = self._compute(number, start, labels, places, store=not last)
            yield Block(start, labels, scores, places, first, end)

    def _compute(self, number: int, start: int, labels: Tensor, places: Tensor, store: bool) -> Tensor:
        problem, end = self._problem, start + labels.shape[0]
        shape = (self._queries.shape[0], labels.shape[0])
        if store and number < self._keep:
            scores = self._kept[number] = problem.queries.new_empty(shape)
        else:
            scores = self._buffer.shaped(shape, problem.queries)
        shift = None if self._shift is None else self._shift[start:end]
        if problem.kind is not scores.dtype:
            scores.copy_(self._queries @ labels.T)
            if shift is not None:
                scores.add_(shift)
        elif shift is None:
            torch.mm(self._queries, labels.T, out=scores)
        else:
            torch.addmm(shift, self._queries, labels.T, out=scores)
        scores.view(-1).index_fill_(0, places, NONE)
        if problem.mask is not None:
            scores.masked_fill_(~problem.mask[:, start:end], NONE)
        return scores


def _difference(bias: Tensor | None, log_q: Tensor | None, like: Tensor) -> Tensor | None:
    """Return bias - log_q, where None means zeros."""
    if log_q is None:
        return None if bias is None else bias.to(like)
    return -log_q.to(like) if bias is None else bias.to(like) - log_q.to(like)
