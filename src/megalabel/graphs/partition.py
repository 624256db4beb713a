"""Balanced groups of labels that are alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

from megalabel.errors import SettingError
from megalabel.graphs._checks import check_least_one
from megalabel.graphs._sparse_rows import SparseRows
from megalabel.graphs._two_means import two_means

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["partition"]


def partition(
    vectors: sparse.csr_matrix | NDArray[np.floating],
    *,
    clusters: int | None = None,
    size: int | None = None,
    seed: int = 0,
) -> NDArray[np.int64]:
    """Group labels into clusters of near-equal size by recursive balanced 2-means on cosine.

    Every cut sorts labels by which of two centres they are more alike to and gives each
    side its share (Parabel: Prabhu et al., WWW 2018, section 3). Sizes are floor(L / K) and
    ceil(L / K) for any number K of clusters. :func:`partition_tree` is the tree of the cuts.

    Args:
        vectors: [L, d] of the labels, dense or csr: vectors of their texts, or the mean of
            their points (:func:`pifa`). Length does not matter.
        clusters: how many; or instead
        size: labels per cluster at most.
        seed: decides first centres.

    Returns:
        [L] the cluster of each label, 0 to K - 1; clusters with near numbers are alike.

    >>> vectors = np.array([[1.0, 0.1], [-1, 0.1], [1, 0.2], [-1, 0.2]])
    >>> cluster = partition(vectors, clusters=2, seed=0)
    >>> bool(cluster[0] == cluster[2] != cluster[1] == cluster[3])
    True
    """
    if (clusters is None) == (size is None):
        raise SettingError("a partition needs either the number of clusters or the size of one")
    check_least_one("clusters", clusters)
    check_least_one("size", size)
    if seed < 0:
        raise SettingError(f"the seed must not be negative, {seed} is")
    labels = vectors.shape[0]
    leaves = clusters if clusters is not None else -(-labels // (size or 1))
    if clusters is not None and clusters > labels:
        raise SettingError(f"{labels} labels cannot make {clusters} clusters")
    if labels == 0:
        return np.empty(0, dtype=np.int64)

    def draw(level: int) -> np.random.Generator:
        return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(level,)))

    if sparse.issparse(vectors):
        return two_means(SparseRows(sparse.csr_matrix(vectors)), leaves, draw)
    from megalabel.graphs._dense_rows import DenseRows

    return two_means(DenseRows(vectors), leaves, draw)
