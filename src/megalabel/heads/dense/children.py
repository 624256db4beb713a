"""Which labels, or finer groups, lie below the groups that a coarser head scores."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from scipy import sparse

__all__ = ["Below", "Children", "best_items"]


@dataclass(frozen=True)
class Below:
    """Items [B, C] below those of each row, ascending, padded with -1."""

    items: NDArray[np.int64]
    totals: NDArray[np.float64]  # the best total above each, its link included; -inf for padding
    links: NDArray[np.int64]  # the link that gave it


@dataclass(frozen=True, eq=False)
class Children:
    """Which items of the next level belong to each item of a level: links from above to below.

    Args:
        indptr: [n + 1].
        indices: those of item i are ``indices[indptr[i]:indptr[i + 1]]``.
        several: whether an item of the next level may belong to several items.
        weights: log of the weight of each link, as long as ``indices``; None is 0.
        limit: how many items at most lead on from the links of a query; None is all.

    >>> from scipy.sparse import csr_matrix
    >>> children = Children.of(csr_matrix(np.array([[1, 1, 0], [0, 0, 1]])))
    >>> children.below(np.array([[1, 0]]), np.array([[0.5, 0.25]])).items.tolist()
    [[0, 1, 2]]
    """

    indptr: NDArray[np.int64]
    indices: NDArray[np.int64]
    several: bool
    weights: NDArray[np.float64] | None = None
    limit: int | None = None

    @classmethod
    def of(cls, relation: sparse.csr_matrix) -> Children:
        """Read a relation [n, items of the next level]."""
        indices = relation.indices.astype(np.int64)
        several = len(indices) > len(np.unique(indices))
        return cls(relation.indptr.astype(np.int64), indices, several)

    def below(self, ids: NDArray[np.int64], totals: NDArray[np.float64]) -> Below:
        """Return what is below the items [B, b] of each row, padded with -1, given their totals [B, b].

        The work depends on the items found, not on how many there are.
        """
        flat, kept = ids.ravel(), ids.ravel() >= 0
        first = self.indptr[np.where(kept, flat, 0)]
        counts = np.where(kept, self.indptr[np.where(kept, flat, 0) + 1] - first, 0)
        owner = np.repeat(np.arange(len(flat)), counts)
        links = first[owner] + np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
        found, above, rows = self.indices[links], totals.ravel()[owner], owner // ids.shape[1]
        above = above if self.weights is None else above + self.weights[links]
        order = np.lexsort((-above, found, rows)) if self.several else np.lexsort((found, rows))
        found, above, rows, links = found[order], above[order], rows[order], links[order]
        if self.several:  # the best of equal ones is the first
            new = np.ones(len(found), dtype=np.bool_)
            new[1:] = (found[1:] != found[:-1]) | (rows[1:] != rows[:-1])
            found, above, rows, links = found[new], above[new], rows[new], links[new]
        lengths = np.bincount(rows, minlength=len(ids))
        slots = np.arange(len(found)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        shape = len(ids), max(1, int(lengths.max(initial=0)))
        below = Below(np.full(shape, -1, dtype=np.int64), np.full(shape, -np.inf), np.full(shape, -1, dtype=np.int64))
        below.items[rows, slots], below.totals[rows, slots], below.links[rows, slots] = found, above, links
        return below

    def shortlist(
        self, ids: NDArray[np.int64], totals: NDArray[np.float64]
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the items [B, C] below those of each row that lead on, ascending, and their totals."""
        below = self.below(ids, totals)
        if self.limit is None or below.items.shape[1] <= self.limit:
            return below.items, below.totals
        items, best = best_items(below.items, below.totals, self.limit)
        order = np.argsort(np.where(items < 0, np.iinfo(np.int64).max, items), axis=1, kind="stable")
        return np.take_along_axis(items, order, axis=1), np.take_along_axis(best, order, axis=1)

    @cached_property
    def _parents(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
        """The items above each item of the next level, and the weights of these links: (indptr, indices, weights)."""
        owner = np.repeat(np.arange(len(self.indptr) - 1), np.diff(self.indptr))
        order = np.argsort(self.indices, kind="stable")
        counts = np.bincount(self.indices, minlength=int(self.indices.max(initial=-1)) + 1)
        weights = np.zeros(len(owner)) if self.weights is None else self.weights
        return np.concatenate([[0], np.cumsum(counts)]), owner[order], weights[order]

    def above(self, item: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the items that an item of the next level belongs to, and the log weights of these links."""
        indptr, indices, weights = self._parents
        if item + 1 >= len(indptr):
            return indices[:0], weights[:0]
        own = slice(indptr[item], indptr[item + 1])
        return indices[own], weights[own]


def best_items(
    items: NDArray[np.int64], totals: NDArray[np.float64], count: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the best items [B, at most count] of each row, best first; ties go to the first, -1 for none."""
    if count < totals.shape[1]:  # those below the worst that can be kept need no sorting
        worst = -np.partition(-totals, count - 1, axis=1)[:, count - 1 : count]
        width = max(count, int((totals >= worst).sum(axis=1).max(initial=0)))
        kept = np.argsort(~(totals >= worst), axis=1, kind="stable")[:, :width]
        items, totals = np.take_along_axis(items, kept, axis=1), np.take_along_axis(totals, kept, axis=1)
    order = np.argsort(-totals, axis=1, kind="stable")[:, :count]
    totals = np.take_along_axis(totals, order, axis=1)
    return np.where(totals > -np.inf, np.take_along_axis(items, order, axis=1), -1), totals
