"""The largest cells of each row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["keep_top"]


def keep_top(matrix: sparse.csr_matrix, top: int, first: NDArray[np.int64] | None = None) -> sparse.csr_matrix:
    """Keep the ``top`` largest cells of each row of a non-negative float32 matrix; ties go to the lower column.

    ``first`` [rows] is a column of each row that is always kept.
    """
    counts = np.diff(matrix.indptr)
    if counts.max(initial=0) <= top:
        return matrix
    rows = np.repeat(np.arange(len(counts)), counts)
    value = matrix.data.copy()
    if first is not None:
        value[matrix.indices == first[rows]] = np.inf
    # The bits of floats above zero are ordered like the floats: one key for row and value.
    key = (rows.astype(np.uint64) << np.uint64(32)) | (np.uint64(0xFFFFFFFF) - value.view(np.uint32))
    order = np.argsort(key, kind="stable")
    rank = np.arange(len(rows)) - np.repeat(matrix.indptr[:-1], counts)
    keep = np.zeros(len(rows), dtype=bool)
    keep[order[rank < top]] = True
    indptr = np.r_[0, np.cumsum(np.minimum(counts, top))]
    return sparse.csr_matrix((matrix.data[keep], matrix.indices[keep], indptr), shape=matrix.shape)
