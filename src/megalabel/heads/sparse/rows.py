"""Checks of the sparse matrices that heads take, and how such a matrix is saved."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

from megalabel.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from os import PathLike

    from numpy.typing import NDArray

__all__ = ["PARTS", "as_rows", "as_targets", "no_cells", "pack", "unit_rows", "unpack"]

PARTS = ("data", "indices", "indptr", "shape")  # arrays of a saved matrix


def as_rows(
    matrix: sparse.csr_matrix | NDArray[np.float32], name: str, columns: int | None = None
) -> sparse.csr_matrix:
    """Return a matrix [n, columns] as float32 csr, without duplicates, columns sorted; the argument is not changed."""
    if not sparse.issparse(matrix) or matrix.ndim != 2:
        raise DataError(f"{name} must be a sparse matrix, not {type(matrix).__name__}")
    if columns is not None and matrix.shape[1] != columns:
        remedy = "encode them with the encoder of the training rows"
        raise DataError(f"{name} has {matrix.shape[1]:,} columns, {columns:,} were expected", remedy=remedy)
    known = isinstance(matrix, sparse.csr_matrix) and matrix.dtype == np.float32
    rows = matrix if known else sparse.csr_matrix(matrix, dtype=np.float32)
    if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    if not np.all(np.isfinite(rows.data)):
        raise DataError(f"{name} holds NaN or infinity")
    return rows


def as_targets(matrix: sparse.csr_matrix, name: str, shape: tuple[int, int]) -> sparse.csr_matrix:
    """Return a sparse matrix of this shape as float32 csr without explicit zeros."""
    if not sparse.issparse(matrix) or matrix.ndim != 2 or matrix.shape != shape:
        given = " x ".join(f"{size:,}" for size in getattr(matrix, "shape", ())) or type(matrix).__name__
        raise DataError(f"{name} must be a sparse matrix {shape[0]:,} x {shape[1]:,}, not {given}")
    rows = as_rows(matrix, name)
    if not np.all(rows.data):
        rows = rows.copy()
        rows.eliminate_zeros()
    return rows


def unit_rows(rows: sparse.csr_matrix) -> sparse.csr_matrix:
    """Return sparse rows scaled to length 1; empty rows stay empty."""
    owner = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
    squares = np.bincount(owner, weights=rows.data.astype(np.float64) ** 2, minlength=rows.shape[0])
    lengths = np.sqrt(np.where(squares > 0, squares, 1))
    unit = sparse.csr_matrix(((rows.data / lengths[owner]).astype(np.float32), rows.indices, rows.indptr), rows.shape)
    unit.has_canonical_format = rows.has_canonical_format
    return unit


def no_cells(shape: tuple[int, int]) -> sparse.csr_matrix:
    """Return an empty float32 matrix."""
    indptr = np.zeros(shape[0] + 1, dtype=np.int32)
    return sparse.csr_matrix((np.empty(0, dtype=np.float32), np.empty(0, dtype=np.int32), indptr), shape=shape)


def pack(name: str, matrix: sparse.csr_matrix) -> dict[str, np.ndarray]:
    """Return the named arrays to save for a matrix."""
    shape = np.array(matrix.shape, dtype=np.int64)
    arrays: list[np.ndarray] = [matrix.data, matrix.indices, matrix.indptr.astype(np.int64), shape]
    return {f"{name}.{part}": array for part, array in zip(PARTS, arrays, strict=True)}


def unpack(name: str, arrays: Mapping[str, np.ndarray], folder: str | PathLike[str]) -> sparse.csr_matrix:
    """Return the matrix that :func:`pack` saved, after checking that no index is out of range."""
    data, indices, indptr, shape = (arrays[f"{name}.{part}"] for part in PARTS)
    valid = (
        shape.shape == (2,)
        and indptr.shape == (shape[0] + 1,)
        and indices.shape == data.shape == (int(indptr[-1]),)
        and indptr[0] == 0
        and bool(np.all(np.diff(indptr) >= 0))
        and indices.dtype.kind == "i"
        and data.dtype == np.float32
        and indices.min(initial=0) >= 0
        and indices.max(initial=-1) < shape[1]
    )
    if not valid:
        raise DataError(f"{name} is damaged", path=folder, remedy="copy the folder again")
    if len(data) <= np.iinfo(np.int32).max:
        indptr = indptr.astype(np.int32)
    return as_rows(sparse.csr_matrix((data, indices, indptr), shape=(int(shape[0]), int(shape[1]))), name)
