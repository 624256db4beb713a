"""Sparse matrices of many rows, made block by block: in memory while they are small, mapped once they are large."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from megalabel.data.arrays import Arrays, ArrayWriter

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

__all__ = ["MatrixWriter", "count_columns", "map_blocks", "row_blocks", "stack_rows", "take_rows"]

_CELLS = 1 << 21  # in a block
_ROWS = 1 << 18


class MatrixWriter:
    """Takes rows of a csr matrix, block by block.

    >>> writer = MatrixWriter(3, np.float32)
    >>> writer.append(np.array([2, 1]), np.array([0, 2, 1]), np.ones(3))
    >>> writer.finish().toarray().tolist()
    [[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]]
    """

    def __init__(self, columns: int, dtype: DTypeLike) -> None:
        small = np.int32 if columns < 2**31 else np.int64
        self.columns = columns
        self.rows = self.cells = 0
        self._writer = ArrayWriter({"indices": small, "data": dtype, "starts": np.int64})
        self._writer.append("starts", [0])

    def append(self, lengths: NDArray[np.integer[Any]], indices: NDArray[np.integer[Any]], data: NDArray[Any]) -> None:
        """Add rows of so many cells."""
        self._writer.append("indices", indices)
        self._writer.append("data", data)
        self._writer.append("starts", self.cells + np.cumsum(lengths, dtype=np.int64))
        self.rows += len(lengths)
        self.cells += len(indices)

    def finish(self) -> sparse.csr_matrix:
        """Return the matrix; a mapped one cannot be written to."""
        return _as_matrix(self._writer.finish(), self.columns)


def _as_matrix(arrays: Arrays, columns: int) -> sparse.csr_matrix:
    starts, indices = arrays["starts"], arrays["indices"]
    rows = len(starts) - 1
    small = np.int32 if max(int(starts[-1]), columns) < 2**31 else np.int64  # scipy has one type for both
    parts: tuple[Any, Any, Any] = arrays["data"], indices.astype(small, copy=False), starts.astype(small)
    return sparse.csr_matrix(parts, shape=(rows, columns), copy=False)


def row_blocks(matrix: sparse.csr_matrix) -> Iterator[slice]:
    """Yield the rows of a matrix, some at a time, of about two million cells.

    >>> list(row_blocks(sparse.csr_matrix((5, 2))))
    [slice(0, 5, None)]
    """
    return _blocks(matrix.indptr)


def _blocks(starts: NDArray[np.integer[Any]]) -> Iterator[slice]:
    start, rows = 0, len(starts) - 1
    while start < rows:
        stop = int(np.searchsorted(starts, int(starts[start]) + _CELLS, side="right")) - 1
        stop = min(max(stop, start + 1), start + _ROWS, rows)
        yield slice(start, stop)
        start = stop


def stack_rows(blocks: Iterable[sparse.csr_matrix], columns: int, dtype: DTypeLike) -> sparse.csr_matrix:
    """Return the rows of all blocks, one after the other."""
    writer = MatrixWriter(columns, dtype)
    for block in blocks:
        start, stop = block.indptr[[0, -1]].tolist()
        writer.append(np.diff(block.indptr), block.indices[start:stop], block.data[start:stop])
    return writer.finish()


def take_rows(matrix: sparse.csr_matrix, rows: NDArray[np.int64]) -> sparse.csr_matrix:
    """Return the rows ``rows``, in that order, as ``matrix[rows]`` does.

    >>> matrix = sparse.csr_matrix(np.eye(3, dtype=np.float32))
    >>> take_rows(matrix, np.array([2, 0])).toarray().tolist()
    [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]
    """
    lengths = np.diff(matrix.indptr)[rows]
    blocks = _blocks(np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]))
    return stack_rows((matrix[rows[block]] for block in blocks), matrix.shape[1], matrix.dtype)


def map_blocks(
    change: Callable[[sparse.csr_matrix, slice], sparse.csr_matrix], matrix: sparse.csr_matrix
) -> sparse.csr_matrix:
    """Return what ``change`` makes of a matrix, block of rows by block of rows; as many rows and columns."""
    return stack_rows((change(matrix[rows], rows) for rows in row_blocks(matrix)), matrix.shape[1], matrix.dtype)


def count_columns(matrix: sparse.csr_matrix) -> NDArray[np.int64]:
    """Return the number of cells of each column.

    >>> count_columns(sparse.csr_matrix(np.array([[1, 1, 0], [1, 0, 0]]))).tolist()
    [2, 1, 0]
    """
    counts = np.zeros(matrix.shape[1], dtype=np.int64)
    for start in range(0, len(matrix.indices), _CELLS):
        counts += np.bincount(matrix.indices[start : start + _CELLS], minlength=matrix.shape[1])
    return counts
