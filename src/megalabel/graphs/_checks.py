"""Input checks and matrix helpers shared by the functions that build graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

from megalabel.errors import DataError, SettingError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["as_graph", "check_delta", "check_least_one", "row_numbers", "stack", "zero_one"]


def check_delta(delta: float) -> None:
    """Refuse a threshold outside [0, 1)."""
    if not 0.0 <= delta < 1.0:
        raise SettingError(f"delta must lie in [0, 1), not {delta}", remedy="0.1 is the usual choice")


def check_least_one(name: str, value: int | None) -> None:
    """Refuse a number below one; None is valid."""
    if value is not None and value < 1:
        raise SettingError(f"{name} must be at least 1, not {value}")


def zero_one(targets: sparse.csr_matrix) -> sparse.csr_matrix:
    """Return the targets as int32 ones, without duplicates, columns sorted; a matrix without positives is refused."""
    if not sparse.issparse(targets) or targets.ndim != 2:
        raise DataError("targets must be a sparse matrix [N, L]")
    ones = sparse.csr_matrix(targets)
    if not ones.has_canonical_format or not np.all(ones.data):
        ones = ones.copy()
        ones.sum_duplicates()
        ones.eliminate_zeros()
    if ones.nnz == 0:
        raise DataError("the targets hold no positives, so the graph would be empty")
    if not np.all(ones.data > 0):
        raise DataError("targets must lie in (0, 1], some are negative or NaN")
    return sparse.csr_matrix((np.ones(ones.nnz, dtype=np.int32), ones.indices, ones.indptr), shape=ones.shape)


def as_graph(graph: sparse.csr_matrix) -> sparse.csr_matrix:
    """Return a square graph as csr, float32, without duplicates, columns sorted; the caller's matrix is not changed."""
    if not sparse.issparse(graph) or graph.ndim != 2 or graph.shape[0] != graph.shape[1]:
        raise DataError("a label graph must be a sparse square matrix [L, L]")
    matrix = sparse.csr_matrix(graph, dtype=np.float32)
    if not matrix.has_canonical_format:
        matrix = matrix.copy()
        matrix.sum_duplicates()
    if not (np.all(matrix.data >= 0) and np.all(np.isfinite(matrix.data))):
        raise DataError("the weights of a label graph must be finite and not negative")
    return matrix


def row_numbers(matrix: sparse.csr_matrix) -> NDArray[np.int64]:
    """Return the row of each stored cell [nnz]."""
    return np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))


def stack(parts: list[sparse.csr_matrix]) -> sparse.csr_matrix:
    """Return the rows of all parts as one matrix; the list is emptied as it goes, to save memory."""
    shape = (sum(part.shape[0] for part in parts), parts[0].shape[1])
    cells = sum(part.nnz for part in parts)
    whole: type[np.int64 | np.int32] = np.int64 if max(cells, *shape) > np.iinfo(np.int32).max else np.int32
    indices, data = np.empty(cells, dtype=whole), np.empty(cells, dtype=parts[0].dtype)
    indptr = np.zeros(shape[0] + 1, dtype=whole)
    row = cell = 0
    parts.reverse()
    while parts:
        part = parts.pop()
        indices[cell : cell + part.nnz], data[cell : cell + part.nnz] = part.indices, part.data
        indptr[row + 1 : row + 1 + part.shape[0]] = part.indptr[1:] + cell
        row, cell = row + part.shape[0], cell + part.nnz
    matrix = sparse.csr_matrix((data, indices, indptr), shape=shape)
    matrix.has_canonical_format = True
    return matrix
