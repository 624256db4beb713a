"""A graph with its weak edges left out."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from megalabel.graphs._checks import as_graph, check_least_one, row_numbers
from megalabel.graphs._top import keep_top

__all__ = ["prune"]


def prune(
    graph: sparse.csr_matrix, *, top: int | None = None, least: float = 0.0, diagonal: bool = True
) -> sparse.csr_matrix:
    """Keep the cells of at least ``least``, and of those the ``top`` largest of each row.

    Args:
        graph: [L, L], weights not negative.
        top: cells per row at most; of equal ones those of lower number. None keeps all.
        least: smallest weight that stays; cells of weight 0 never do.
        diagonal: a cell on the diagonal stays whatever its weight, as one of the ``top``.

    Returns:
        [L, L] float32 with some of the cells, values unchanged.

    >>> graph = sparse.csr_matrix([[1, 5, 4], [3, 9, 0], [2, 2, 9]])
    >>> prune(graph, top=2).toarray().astype(int).tolist()
    [[1, 5, 0], [3, 9, 0], [2, 0, 9]]
    >>> prune(graph, least=4, diagonal=False).toarray().astype(int).tolist()
    [[0, 5, 4], [0, 9, 0], [0, 0, 9]]
    """
    check_least_one("top", top)
    matrix = as_graph(graph)
    rows = row_numbers(matrix)
    stays = matrix.data >= least
    if diagonal:
        stays |= matrix.indices == rows
    stays &= matrix.data > 0
    indptr = np.r_[0, np.cumsum(np.bincount(rows[stays], minlength=matrix.shape[0]))]
    kept = sparse.csr_matrix((matrix.data[stays], matrix.indices[stays], indptr), shape=matrix.shape)
    return kept if top is None else keep_top(kept, top, np.arange(matrix.shape[0]) if diagonal else None)
