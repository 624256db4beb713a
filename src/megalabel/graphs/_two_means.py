"""Balanced clusters by recursive 2-means, used for clusters of rows and of labels."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import numpy as np

from megalabel.progress import progress

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Rows", "two_means"]

Axes = TypeVar("Axes")

_LEAST_GAIN = 1e-4  # stop when the mean similarity grows by less
_ROUNDS = 50  # at most
SAMPLE = 32_768  # rows of a large cluster that determine its two centres


class Rows(Protocol[Axes]):
    """Unit vectors to cluster; dense and sparse ones differ only in these products and sums.

    Axes are the differences of two centres, one for each group of rows.
    """

    def __len__(self) -> int:
        """Return the number of rows."""
        ...

    def differences(self, first: NDArray[np.int64], second: NDArray[np.int64]) -> Axes:
        """Return row ``first`` minus row ``second`` for each pair."""
        ...

    def take(self, axes: Axes, which: NDArray[np.int64]) -> Axes:
        """Return some of the axes."""
        ...

    def put(self, axes: Axes, which: NDArray[np.int64], new: Axes) -> None:
        """Replace some of the axes."""
        ...

    def along(self, rows: NDArray[np.int64], group: NDArray[np.int64], axes: Axes) -> NDArray[np.floating]:
        """Return the product [n] of each row (ascending) with the axis of its group, between -2 and 2."""
        ...

    def halves(self, rows: NDArray[np.int64], starts: NDArray[np.int64]) -> tuple[Axes, NDArray[np.floating]]:
        """Return the axes between neighbouring means, and the length of the sums of rows [2 G].

        The first mean of group g is over the rows from ``starts[2 g]`` on, the second over those
        from ``starts[2 g + 1]`` on.
        """
        ...


def two_means(rows: Rows[Axes], leaves: int, draw: Callable[[int], np.random.Generator]) -> NDArray[np.int64]:
    """Split rows into ``leaves`` clusters of near-equal size and return the cluster of each [N].

    Each cluster is split in two: from two random rows as centres, rows are sorted by the
    difference of their similarities to the two and cut where both sides get their share
    of the final clusters; centres become the normalised means, until the mean similarity
    to them grows by less than 1e-4. All clusters of a level are split together. One with
    more than 32,768 rows finds its centres on a random 32,768 of them. ``draw`` returns the
    random generator of a level.
    """
    tree = _Tree(rows, leaves)
    with progress("clustering", total=tree.depth, unit="levels") as step:
        for level in range(tree.depth):
            tree.split(draw(level))
            step(1)
    return tree.node


class _Tree(Generic[Axes]):
    """The clusters so far: row i is in cluster c = node[i], which will become final clusters first[c] to first[c + 1].

    Rows are in ascending order, each with the number of its group, a cluster that is being split.
    """

    def __init__(self, vectors: Rows[Axes], leaves: int) -> None:
        self.vectors = vectors
        self.depth = (leaves - 1).bit_length()
        self.bounds = np.arange(leaves + 1) * len(vectors) // leaves  # rows before each final cluster
        self.first = np.array([0, leaves])
        self.node = np.zeros(len(vectors), dtype=np.int64)

    def split(self, rng: np.random.Generator) -> None:
        """Split every cluster that is not final yet."""
        leaves = np.diff(self.first)
        cut = leaves > 1
        start, middle, stop = self.first[:-1][cut], self.first[:-1][cut] + (leaves[cut] + 1) // 2, self.first[1:][cut]
        sizes, left = self.bounds[stop] - self.bounds[start], self.bounds[middle] - self.bounds[start]

        rows = np.flatnonzero(cut[self.node])
        group = (np.cumsum(cut) - 1)[self.node[rows]]
        axes = self._axes(rows, group, sizes, left, rng)
        rank = np.arange(len(rows)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        right = rows[self._sort(rows, group, axes)][rank >= np.repeat(left, sizes)]
        self.node += (np.cumsum(cut) - cut)[self.node]
        self.node[right] += 1
        self.first = np.sort(np.concatenate([self.first, middle]))

    def _axes(
        self,
        rows: NDArray[np.int64],
        group: NDArray[np.int64],
        sizes: NDArray[np.int64],
        left: NDArray[np.int64],
        rng: np.random.Generator,
    ) -> Axes:
        """Return the difference of the two centres of each group."""
        share = left / sizes
        if sizes.max() > SAMPLE:
            drawn = rng.random(len(rows)) < (SAMPLE / sizes)[group]
            rows, group = rows[drawn], group[drawn]
        counts = np.bincount(group, minlength=len(sizes))
        axes = self._random_axes(rows, group, counts, rng)
        live, best = np.arange(len(sizes)), np.full(len(sizes), -np.inf)
        for _ in range(_ROUNDS):
            order = self._sort(rows, group, self.vectors.take(axes, live))
            middle = np.clip(np.rint(counts * share[live]).astype(np.int64), 1, counts - 1)
            starts = np.cumsum(counts) - counts
            new, lengths = self.vectors.halves(rows[order], np.stack([starts, starts + middle], axis=1).ravel())
            self.vectors.put(axes, live, new)
            similarity = (lengths[0::2] + lengths[1::2]) / counts
            going = similarity - best >= _LEAST_GAIN
            if not going.any():
                break
            keep = going[group]
            rows, group = rows[keep], (np.cumsum(going) - 1)[group[keep]]
            live, best, counts = live[going], similarity[going], counts[going]
        return axes

    def _random_axes(
        self, rows: NDArray[np.int64], group: NDArray[np.int64], counts: NDArray[np.int64], rng: np.random.Generator
    ) -> Axes:
        """Return the difference of two random rows of each group."""
        grouped = rows[np.argsort(group, kind="stable")]
        one = (rng.random(len(counts)) * counts).astype(np.int64)
        other = (one + 1 + (rng.random(len(counts)) * (counts - 1)).astype(np.int64)) % counts
        starts = np.cumsum(counts) - counts
        return self.vectors.differences(grouped[starts + one], grouped[starts + other])

    def _sort(self, rows: NDArray[np.int64], group: NDArray[np.int64], axes: Axes) -> NDArray[np.int64]:
        """Return the order of rows by group, then by similarity, from the first centre to the second."""
        return np.argsort(8.0 * group - self.vectors.along(rows, group, axes))
