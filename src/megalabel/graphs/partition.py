"""Balanced clusters of similar labels."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from megalabel.errors import DataError, SettingError
from megalabel.graphs._checks import check_least_one
from megalabel.graphs._two_means import two_means

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["partition", "partition_tree"]


def partition(
    vectors: sparse.csr_matrix | NDArray[np.floating],
    *,
    clusters: int | None = None,
    size: int | None = None,
    seed: int = 0,
) -> NDArray[np.int64]:
    """Group labels into clusters of near-equal size by recursive balanced 2-means on cosine.

    Every split sorts labels by which of two centres they are more similar to and gives each
    side its share (Parabel: Prabhu et al., WWW 2018, section 3). Sizes are floor(L / K) and
    ceil(L / K) for any number K of clusters. :func:`partition_tree` is the tree of the cuts.

    Args:
        vectors: [L, d] of the labels, dense or csr: vectors of their texts, or the mean of
            their points (:func:`pifa`). Length does not matter.
        clusters: number of clusters; or instead
        size: maximum number of labels per cluster.
        seed: seed of the first centres.

    Returns:
        [L] the cluster of each label, 0 to K - 1; neighbouring clusters are similar.

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
        raise SettingError(f"the seed must be at least 0, not {seed}")
    labels = vectors.shape[0]
    leaves = clusters if clusters is not None else -(-labels // (size or 1))
    if clusters is not None and clusters > labels:
        raise SettingError(f"{labels} labels cannot form {clusters} clusters")
    if labels == 0:
        return np.empty(0, dtype=np.int64)

    def draw(level: int) -> np.random.Generator:
        return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(level,)))

    if sparse.issparse(vectors):
        return two_means(SparseRows(sparse.csr_matrix(vectors)), leaves, draw)
    from megalabel.graphs._dense_rows import DenseRows

    return two_means(DenseRows(vectors), leaves, draw)


class SparseRows:
    """Vectors [N, d] as csr, scaled to unit length. Axes are sparse too, one matrix [1, d] each in an object array.

    Centres are never all dense at once: with many groups and a large vocabulary they would
    not fit. One dense vector [d] is used for all groups in turn.
    """

    def __init__(self, vectors: sparse.csr_matrix) -> None:
        rows = sparse.csr_matrix(vectors, dtype=np.float32, copy=True)
        rows.sum_duplicates()
        if not np.all(np.isfinite(rows.data)):
            raise DataError("a vector to cluster holds NaN or infinity")
        self.vectors = _unit(rows)

    def __len__(self) -> int:
        return int(self.vectors.shape[0])

    def differences(self, first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[Any]:
        """Return row ``first`` minus row ``second`` for each pair."""
        return _split(self.vectors[first] - self.vectors[second])

    def take(self, axes: NDArray[Any], which: NDArray[np.int64]) -> NDArray[Any]:
        """Return some of the axes."""
        return axes[which]

    def put(self, axes: NDArray[Any], which: NDArray[np.int64], new: NDArray[Any]) -> None:
        """Replace some of the axes."""
        axes[which] = new

    def along(self, rows: NDArray[np.int64], group: NDArray[np.int64], axes: NDArray[Any]) -> NDArray[np.floating]:
        """Return the product [n] of each row with the axis of its group."""
        order = np.argsort(group, kind="stable")
        grouped = self.vectors[rows[order]]
        ends = np.searchsorted(group[order], np.arange(len(axes) + 1)).tolist()
        dense = np.zeros(grouped.shape[1], dtype=np.float32)
        products = np.empty(len(rows), dtype=np.float32)
        for (columns, values), start, stop in zip(axes, ends[:-1], ends[1:], strict=True):
            dense[columns] = values
            products[start:stop] = grouped[start:stop] @ dense
            dense[columns] = 0
        unsorted = np.empty_like(products)
        unsorted[order] = products
        return unsorted

    def halves(self, rows: NDArray[np.int64], starts: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[np.floating]]:
        """Return the axes between neighbouring means, and the length of the sums of rows [2 G]."""
        ones = np.ones(len(rows), dtype=np.float32)
        which = sparse.csr_matrix((ones, rows, np.r_[starts, len(rows)]), shape=(len(starts), len(self)))
        sums = (which @ self.vectors).tocsr()
        lengths = _lengths(sums)
        unit = _unit(sums)
        return _split(unit[0::2] - unit[1::2]), lengths


def _lengths(matrix: sparse.csr_matrix) -> NDArray[np.float64]:
    rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    return np.sqrt(np.bincount(rows, matrix.data.astype(np.float64) ** 2, minlength=matrix.shape[0]))


def _unit(matrix: sparse.csr_matrix) -> sparse.csr_matrix:
    """Scale the rows in place to length 1; empty ones stay empty."""
    lengths = _lengths(matrix)
    scale = np.divide(1.0, lengths, out=np.zeros_like(lengths), where=lengths > 0)
    matrix.data *= np.repeat(scale, np.diff(matrix.indptr)).astype(matrix.dtype)
    return matrix


def _split(matrix: sparse.csr_matrix) -> NDArray[Any]:
    """Return columns and values of each row, as an array of pairs."""
    rows = sparse.csr_matrix(matrix)
    pairs = np.empty(rows.shape[0], dtype=object)
    ends = rows.indptr.tolist()
    for row, (start, stop) in enumerate(pairwise(ends)):
        pairs[row] = (rows.indices[start:stop], rows.data[start:stop])
    return pairs


def partition_tree(clusters: int, *, branches: int = 2) -> list[NDArray[np.int64]]:
    """Return the tree whose leaves are the clusters of :func:`partition`, from the root down.

    Clusters are numbered along the tree that made them, so their number determines the tree: entry d
    of the list gives each node of level d + 1 its parent among the nodes of level d. Level
    0 is the root, the last level has one node for each cluster. A cluster that is final
    early continues as an only child, so every leaf is equally deep.

    Args:
        clusters: number of clusters, at least 1.
        branches: largest number of children of a node, a power of two: with 16, four splits make one level. If
            splits are left over, the root has fewer children, so that clusters have as many siblings as possible.

    Returns:
        one array of parents for each level below the root; none for a single cluster.

    >>> [level.tolist() for level in partition_tree(5)]
    [[0, 0], [0, 0, 1, 1], [0, 0, 1, 2, 3]]
    >>> [level.tolist() for level in partition_tree(5, branches=4)]
    [[0, 0], [0, 0, 0, 1, 1]]
    """
    check_least_one("clusters", clusters)
    if branches < 2 or branches & (branches - 1):
        raise SettingError(f"branches must be a power of two, not {branches}", remedy="choose 2, 4, 8, 16 or 32")
    every = branches.bit_length() - 1
    depth = (clusters - 1).bit_length()
    first = above = np.array([0, clusters])  # the cluster at which each node of a level starts
    levels = []
    for level in range(depth):
        sizes = np.diff(first)
        middle = (first[:-1] + (sizes + 1) // 2)[sizes > 1]
        first = np.sort(np.r_[first, middle])
        if (depth - level - 1) % every == 0:
            levels.append(np.searchsorted(above, first[:-1], side="right") - 1)
            above = first
    return levels
