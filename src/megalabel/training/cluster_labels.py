"""The set whose labels are clusters of labels."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

from megalabel.data.dataset import Dataset, Labels
from megalabel.graphs import partition, pifa

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from megalabel.data.dataset import Split

__all__ = ["cluster_labels"]


def cluster_labels(data: Dataset, vectors: NDArray[np.float32], clusters: int, *, seed: int) -> Dataset:
    """Return the same points with clusters of labels for labels, an easier task to learn features on.

    Labels are grouped by the mean of their training points, in clusters of near-equal size
    (the surrogate task of DeepXML, Dahiya et al., WSDM 2021, section 3). A point is as
    relevant for a cluster as for its labels together, at most 1. Filter pairs are dropped.

    Args:
        data: the set.
        vectors: [N, d] of its training points.
        clusters: how many, at most the number of labels.
        seed: of the clustering.

    >>> data = Dataset.from_lists(
    ...     train=[("a", [0, 2]), ("b", [1]), ("c", [3])], test=[("d", [2])], labels=["w", "x", "y", "z"])
    >>> vectors = np.array([[1, 0.1], [-1, 0], [-1, 0.1]], dtype=np.float32)
    >>> fewer = cluster_labels(data, vectors, 2, seed=0)
    >>> sorted(fewer.train.targets.toarray().sum(axis=0).tolist()), len(fewer.labels)
    ([1.0, 2.0], 2)
    """
    count = min(clusters, len(data.labels))
    cluster = partition(pifa(vectors, data.train.targets), clusters=count, seed=seed)
    ones = np.ones(len(cluster), dtype=np.float32)
    member = sparse.csr_matrix((ones, cluster, np.arange(len(cluster) + 1)), shape=(len(cluster), count))

    def grouped(split: Split) -> Split:
        targets = sparse.csr_matrix(split.targets @ member, dtype=np.float32)
        targets.sort_indices()
        np.minimum(targets.data, 1, out=targets.data)
        return replace(split, targets=targets, filter=np.empty((0, 2), dtype=np.int64))

    names = [str(number) for number in range(count)]
    return Dataset(
        train=grouped(data.train),
        test=grouped(data.test),
        val=None if data.val is None else grouped(data.val),
        labels=Labels(names, names),
        name=f"{data.name}, {count:,} clusters of labels",
    )
