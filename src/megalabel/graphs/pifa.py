"""Label vectors from the points of a label (PIFA)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

from megalabel.errors import DataError
from megalabel.graphs._checks import zero_one

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["pifa"]


def pifa(
    features: sparse.csr_matrix | NDArray[np.floating], targets: sparse.csr_matrix
) -> sparse.csr_matrix | NDArray[np.float32]:
    """Describe each label by the mean of its points, scaled to length 1.

    v_l = unit(sum_s y_sl x_s), positive instance feature aggregation as in PECOS (Yu et al.,
    JMLR 2022), over Y as zeros and ones. A label without a point has the zero vector.

    Args:
        features: X [N, d] of the points, csr (tf-idf) or dense (vectors of an encoder).
        targets: Y [N, L], csr, values in (0, 1].

    Returns:
        [L, d] float32, csr for csr and an array for an array.

    >>> X = np.array([[1.0, 0.0], [1.0, 2.0], [0.0, 1.0]])
    >>> Y = sparse.csr_matrix([[1, 0, 0], [1, 1, 0], [0, 1, 0]])
    >>> print(pifa(X, Y).round(3))
    [[0.707 0.707]
     [0.316 0.949]
     [0.    0.   ]]
    """
    ones = zero_one(targets)
    if features.ndim != 2 or features.shape[0] != ones.shape[0]:
        shape = tuple(features.shape)
        raise DataError(f"features {shape} do not fit targets {tuple(ones.shape)}: give one row per point")
    points = ones.T.tocsr().astype(np.float32)
    if sparse.issparse(features):
        sums = sparse.csr_matrix(points @ features, dtype=np.float32)
        sums.sort_indices()
        rows = np.repeat(np.arange(sums.shape[0]), np.diff(sums.indptr))
        sums.data /= np.sqrt(np.bincount(rows, sums.data.astype(np.float64) ** 2))[rows]
        return sums
    dense = np.asarray(points @ np.asarray(features, dtype=np.float32))
    lengths = np.linalg.norm(dense, axis=1, keepdims=True)
    np.divide(dense, lengths, out=dense, where=lengths > 0)
    return dense
