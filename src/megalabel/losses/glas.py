"""GLaS: label vectors as alike as their labels are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn.functional import embedding_bag

from megalabel.errors import DataError

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix
    from torch import Tensor

__all__ = ["glas"]


def glas(vectors: Tensor, similarity: csr_matrix) -> Tensor:
    r"""Return how far the products of label vectors are from the similarities of their labels.

    .. math::
        R = \frac{1}{L^2} \sum_{ij} (\langle w_i, w_j \rangle - S_{ij})^2
          = \frac{1}{L^2} \Big( \|W^T W\|_F^2 - 2 \langle W, S W \rangle + \|S\|_F^2 \Big)

    The graph Laplacian and spreadout regulariser of Guo et al. 2019, "Breaking the glass
    ceiling for embedding-based classifiers for large output spaces". It is a function of
    the label vectors, to be added to a loss with a weight of its own, not a loss on
    scores. The second form is exact and takes O(L d^2 + nnz d) time and O(L d + d^2)
    memory: no L x L matrix. Its terms cancel where R is small: in float32, R is right to
    about 1e-6 of its first term.

    S = (C + C^T) / 2 with C from :func:`megalabel.graphs.cooccurrence` at delta 0. For the
    pool of a step give the vectors and ``S[pool][:, pool]``.

    Args:
        vectors: W [L, d], float32 or float64; gets the gradient.
        similarity: S [L, L] csr, symmetric or not; cells not stored are 0.

    Returns:
        R, a scalar.

    >>> import numpy as np
    >>> from scipy.sparse import csr_matrix
    >>> S = csr_matrix(np.array([[1.0, 0.75], [0.75, 1.0]]))
    >>> round(glas(torch.eye(2), S).item(), 5)  # (0.75^2 + 0.75^2) / 4
    0.28125
    """
    size = vectors.shape[0]
    if similarity.shape != (size, size):
        raise DataError(f"{size:,} label vectors but similarities of {similarity.shape[0]:,} x {similarity.shape[1]:,}")
    columns = torch.from_numpy(similarity.indices).to(vectors.device, torch.int64)
    starts = torch.from_numpy(similarity.indptr).to(vectors.device, torch.int64)
    values = torch.from_numpy(similarity.data).to(vectors)
    pull = embedding_bag(
        columns, vectors, starts, mode="sum", per_sample_weights=values, include_last_offset=True
    )  # S W
    total = (vectors.T @ vectors).square().sum() - 2 * (pull * vectors).sum() + values.square().sum()
    return total / size**2
