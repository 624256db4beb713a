"""Visit counts of random walks as targets of label texts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

from megalabel.graphs._checks import as_graph, check_delta, row_numbers

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["walk_targets"]


def walk_targets(visits: sparse.csr_matrix, delta: float = 0.1) -> sparse.csr_matrix:
    """Turn visit counts into the targets of label texts, as :func:`cooccurrence` gives them from counts.

    Row j is divided by its own diagonal, the visits of label j to itself, and clipped to 1:
    c_ij = min(1, V_ji / V_jj), kept when c_ij > delta. The diagonal is always 1. The Gandalf
    thesis uses walks in place of counts (Kharbanda, Table 1.7) without saying how visits
    become targets; this is the reading under which both graphs mean the same.

    Args:
        visits: [L, L] counts, from :func:`random_walk`; a label that never visits itself keeps only itself.
        delta: targets must be above it, in [0, 1).

    Returns:
        [L, L] float32 in (delta, 1]; row j holds the targets of label text j.

    >>> visits = sparse.csr_matrix([[8.0, 2, 0], [9, 6, 1], [0, 0, 10]])
    >>> walk_targets(visits, delta=0.2).toarray().tolist()
    [[1.0, 0.25, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    check_delta(delta)
    graph = as_graph(visits)
    own: NDArray[np.float64] = graph.diagonal().astype(np.float64)
    rows, cols = row_numbers(graph), graph.indices
    off = rows != cols
    values = np.minimum(graph.data[off] / np.where(own > 0, own, np.inf)[rows[off]], 1.0)
    keep = values > delta
    every = np.arange(len(own))
    cells = (np.r_[rows[off][keep], every], np.r_[cols[off][keep], every])
    return sparse.csr_matrix((np.r_[values[keep], np.ones(len(own))].astype(np.float32), cells), shape=graph.shape)
