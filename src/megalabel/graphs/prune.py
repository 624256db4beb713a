"""Remove weak edges from a graph."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from megalabel.graphs._checks import as_graph, check_least_one, row_numbers
from megalabel.graphs._top import keep_top

__all__ = ["prune"]


def prune(
    graph: sparse.csr_matrix, *, top: int | None = None, min_weight: float = 0.0, diagonal: bool = True
) -> sparse.csr_matrix:
    """Keep the cells of at least ``min_weight``, and of those the ``top`` largest of each row.

    Args:
        graph: [L, L], weights not negative.
        top: largest number of cells per row; ties go to the lower id. None keeps all.
        min_weight: smallest weight to keep; cells of weight 0 are always dropped.
        diagonal: keep cells on the diagonal whatever their weight; they count among the ``top``.

    Returns:
        [L, L] float32 with some of the cells, values unchanged.

    >>> graph = sparse.csr_matrix([[1, 5, 4], [3, 9, 0], [2, 2, 9]])
    >>> prune(graph, top=2).toarray().astype(int).tolist()
    [[1, 5, 0], [3, 9, 0], [2, 0, 9]]
    >>> prune(graph, min_weight=4, diagonal=False).toarray().astype(int).tolist()
    [[0, 5, 4], [0, 9, 0], [0, 0, 9]]
    """
    check_least_one("top", top)
    matrix = as_graph(graph)
    rows = row_numbers(matrix)
    keep = matrix.data >= min_weight
    if diagonal:
        keep |= matrix.indices == rows
    keep &= matrix.data > 0
    indptr = np.r_[0, np.cumsum(np.bincount(rows[keep], minlength=matrix.shape[0]))]
    kept = sparse.csr_matrix((matrix.data[keep], matrix.indices[keep], indptr), shape=matrix.shape)
    return kept if top is None else keep_top(kept, top, np.arange(matrix.shape[0]) if diagonal else None)
