"""Sparse vectors as rows to be split in two."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from megalabel.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["SparseRows"]


class SparseRows:
    """Vectors [N, d] as csr, scaled to unit length. Axes are sparse too, one matrix [1, d] each in an object array.

    Centres never become dense together: with many groups and a large vocabulary they would
    not fit. One dense vector [d] serves all groups in turn.
    """

    def __init__(self, vectors: sparse.csr_matrix) -> None:
        rows = sparse.csr_matrix(vectors, dtype=np.float32, copy=True)
        rows.sum_duplicates()
        if not np.all(np.isfinite(rows.data)):
            raise DataError("a vector to be clustered holds NaN or infinity")
        self.vectors = _unit(rows)

    def __len__(self) -> int:
        return int(self.vectors.shape[0])

    def differences(self, first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[Any]:
        """Return row ``first`` minus row ``second`` for each pair."""
        return _split(self.vectors[first] - self.vectors[second])

    def take(self, axes: NDArray[Any], which: NDArray[np.int64]) -> NDArray[Any]:
        """Return some of the axes."""
        return axes[which]

    def put(self, axes: NDArray[Any], which: NDArray[np.int64], new: NDArray[Any]) -> None:
        """Replace some of the axes."""
        axes[which] = new

    def along(self, rows: NDArray[np.int64], group: NDArray[np.int64], axes: NDArray[Any]) -> NDArray[np.floating]:
        """Return the product [n] of each row with the axis of its group."""
        order = np.argsort(group, kind="stable")
        grouped = self.vectors[rows[order]]
        ends = np.searchsorted(group[order], np.arange(len(axes) + 1)).tolist()
        dense = np.zeros(grouped.shape[1], dtype=np.float32)
        products = np.empty(len(rows), dtype=np.float32)
        for (columns, values), start, stop in zip(axes, ends[:-1], ends[1:], strict=True):
            dense[columns] = values
            products[start:stop] = grouped[start:stop] @ dense
            dense[columns] = 0
        found = np.empty_like(products)
        found[order] = products
        return found

    def halves(self, rows: NDArray[np.int64], starts: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[np.floating]]:
        """Return the axes between neighbouring means, and the length of the sums of rows [2 G]."""
        ones = np.ones(len(rows), dtype=np.float32)
        which = sparse.csr_matrix((ones, rows, np.r_[starts, len(rows)]), shape=(len(starts), len(self)))
        sums = (which @ self.vectors).tocsr()
        lengths = _lengths(sums)
        unit = _unit(sums)
        return _split(unit[0::2] - unit[1::2]), lengths


def _lengths(matrix: sparse.csr_matrix) -> NDArray[np.float64]:
    rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    return np.sqrt(np.bincount(rows, matrix.data.astype(np.float64) ** 2, minlength=matrix.shape[0]))


def _unit(matrix: sparse.csr_matrix) -> sparse.csr_matrix:
    """Scale the rows in place to length 1; empty ones stay empty."""
    lengths = _lengths(matrix)
    scale = np.divide(1.0, lengths, out=np.zeros_like(lengths), where=lengths > 0)
    matrix.data *= np.repeat(scale, np.diff(matrix.indptr)).astype(matrix.dtype)
    return matrix


def _split(matrix: sparse.csr_matrix) -> NDArray[Any]:
    """Return columns and values of each row, as an array of pairs."""
    rows = sparse.csr_matrix(matrix)
    found = np.empty(rows.shape[0], dtype=object)
    ends = rows.indptr.tolist()
    for row, (start, stop) in enumerate(pairwise(ends)):
        found[row] = (rows.indices[start:stop], rows.data[start:stop])
    return found
