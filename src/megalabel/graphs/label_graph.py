"""The label graphs that a setting or an option can name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

from megalabel.errors import SettingError, nearest
from megalabel.graphs.cooccurrence import cooccurrence
from megalabel.graphs.random_walk import random_walk, walk_targets

if TYPE_CHECKING:
    from scipy import sparse

__all__ = ["GRAPHS", "GraphKind", "label_graph"]

GraphKind = Literal["counts", "shared_counts", "shrunk_counts", "walk"]
GRAPHS: tuple[str, ...] = get_args(GraphKind)


def label_graph(kind: str, targets: sparse.csr_matrix, delta: float = 0.1, *, seed: int = 0) -> sparse.csr_matrix:
    """Estimate the targets of each label text by one of four graphs; the diagonal is 1.

    With G = Y^T Y and m_s the number of labels of point s, the target of label i for label text j is

    - ``counts``: G_ij / G_jj (Gandalf: Kharbanda et al. 2024, arXiv 2405.04545);
    - ``shared_counts``: (1 / G_jj) sum_s y_si y_sj / (m_s - 1), so that a point with many labels counts less;
    - ``shrunk_counts``: G_ij / (G_jj + 1), so that a label with few points counts less;
    - ``walk``: visits of random walks (:func:`random_walk`, then :func:`walk_targets`).

    Args:
        kind: one of these names.
        targets: Y [N, L], csr, values in (0, 1].
        delta: targets must be above it, in [0, 1).
        seed: seed of the walks.

    Returns:
        [L, L] float32 in (delta, 1]; row j holds the targets of label text j.

    >>> from scipy import sparse
    >>> Y = sparse.csr_matrix([[1, 1, 1], [1, 1, 0], [1, 1, 0]])
    >>> for kind in GRAPHS[:3]:
    ...     print(kind, label_graph(kind, Y)[1].toarray().round(2))
    counts [[1.   1.   0.33]]
    shared_counts [[0.83 1.   0.17]]
    shrunk_counts [[0.75 1.   0.25]]
    """
    if kind not in GRAPHS:
        raise SettingError(f"graph is {kind!r}", remedy=nearest(kind, GRAPHS))
    if kind == "walk":
        return walk_targets(random_walk(targets, seed=seed), delta)
    return cooccurrence(targets, delta, share_rows=kind == "shared_counts", shrink=int(kind == "shrunk_counts"))
