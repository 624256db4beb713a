"""Weights of a graph scaled by the sums of its rows and columns."""

from __future__ import annotations

from typing import Literal

import numpy as np
from scipy import sparse

from megalabel.errors import SettingError, nearest
from megalabel.graphs._checks import as_graph, row_numbers

__all__ = ["normalise"]

_WAYS = ("symmetric", "row")


def normalise(graph: sparse.csr_matrix, how: Literal["symmetric", "row"] = "symmetric") -> sparse.csr_matrix:
    """Scale a graph for averaging over neighbours.

    With the sums of the rows on the diagonal of D_r and those of the columns on D_c:

    - ``symmetric``: D_r^-1/2 G D_c^-1/2, what ECLARE's graph convolution takes (Mittal et
      al., WWW 2021). No singular value is above 1, so repeated averaging never grows.
    - ``row``: D_r^-1 G. Rows sum to 1: a plain weighted mean of the neighbours.

    Empty rows and columns stay empty.

    Args:
        graph: [L, L], weights not negative.
        how: symmetric or row.

    Returns:
        [L, L] float32 with the cells of ``graph``.

    >>> graph = sparse.csr_matrix([[1.0, 3.0], [0.0, 1.0]])
    >>> normalise(graph).toarray().round(3).tolist()
    [[0.5, 0.75], [0.0, 0.5]]
    >>> normalise(graph, "row").toarray().tolist()
    [[0.25, 0.75], [0.0, 1.0]]
    """
    if how not in _WAYS:
        raise SettingError(f"there is no normalisation {how!r}", remedy=nearest(str(how), _WAYS))
    matrix = as_graph(graph)
    weights = matrix.data.astype(np.float64)
    rows = row_numbers(matrix)
    by_row = np.bincount(rows, weights, minlength=matrix.shape[0])[rows]
    by_column = np.bincount(matrix.indices, weights, minlength=matrix.shape[1])[matrix.indices]
    divisor = by_row if how == "row" else np.sqrt(by_row * by_column)
    scaled = np.divide(weights, divisor, out=np.zeros_like(weights), where=divisor > 0)
    return sparse.csr_matrix(
        (scaled.astype(np.float32), matrix.indices.copy(), matrix.indptr.copy()), shape=matrix.shape
    )
