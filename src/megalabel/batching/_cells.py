"""Relevant cells of a few rows of a sparse matrix, gathered without a loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from scipy.sparse import csr_matrix

__all__ = ["Cells", "draw_one_each", "gather", "most_frequent", "places"]


class Cells(NamedTuple):
    """Cells of B rows, row by row; row r holds cells starts[r] to starts[r + 1]."""

    rows: NDArray[np.int64]  # [n] position of the row among the B
    labels: NDArray[np.int64]  # [n]
    values: NDArray[np.float32]  # [n]
    starts: NDArray[np.int64]  # [B + 1]

    def keep(self, which: NDArray[np.bool_]) -> Cells:
        """Return the marked cells of the same B rows."""
        rows = self.rows[which]
        counts = np.bincount(rows, minlength=len(self.starts) - 1)
        return Cells(rows, self.labels[which], self.values[which], _starts(counts))


def gather(matrix: csr_matrix, rows: NDArray[np.int64]) -> Cells:
    """Return the stored cells of ``rows`` [B]; a row may be listed twice."""
    first = matrix.indptr[rows].astype(np.int64)
    counts = matrix.indptr[rows + 1] - first
    starts = _starts(counts)
    cells = np.repeat(first - starts[:-1], counts) + np.arange(starts[-1])
    positions = np.repeat(np.arange(len(rows)), counts)
    return Cells(positions, matrix.indices[cells].astype(np.int64), matrix.data[cells], starts)


def draw_one_each(
    starts: NDArray[np.int64], values: NDArray[np.float32], times: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Draw ``times`` cells of each row with replacement, in proportion to value: [B, times]; no row may be empty."""
    total = np.concatenate([[0.0], np.cumsum(values, dtype=np.float64)])
    low, high = total[starts[:-1], None], total[starts[1:], None]
    points = low + rng.random((len(starts) - 1, times)) * (high - low)
    cells: NDArray[np.int64] = np.searchsorted(total, points, side="right") - 1
    return np.clip(cells, starts[:-1, None], starts[1:, None] - 1)


def most_frequent(
    labels: NDArray[np.int64],
    limit: int | None,
    rng: np.random.Generator,
    excluded: NDArray[np.int64] | None = None,
) -> NDArray[np.int64]:
    """Return the ``limit`` most frequent distinct labels that are not ``excluded`` (sorted); ties at random."""
    distinct, counts = np.unique(labels, return_counts=True)
    if excluded is not None:
        new = ~places(excluded, distinct)[1]
        distinct, counts = distinct[new], counts[new]
    if limit is None or len(distinct) <= limit:
        return distinct
    keys = counts + rng.random(len(counts))
    return distinct[np.argpartition(-keys, limit)[:limit]]


def places(pool: NDArray[np.int64], labels: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the position of each label in the sorted pool, and whether the pool holds it."""
    if len(pool) == 0:
        return np.zeros(len(labels), dtype=np.int64), np.zeros(len(labels), dtype=bool)
    place = np.minimum(np.searchsorted(pool, labels), len(pool) - 1)
    return place, pool[place] == labels


def _starts(counts: NDArray[np.integer]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
