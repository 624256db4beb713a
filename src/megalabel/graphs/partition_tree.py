"""The tree above the clusters of a partition."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from megalabel.errors import SettingError
from megalabel.graphs._checks import check_least_one

__all__ = ["partition_tree"]


def partition_tree(clusters: int, *, branches: int = 2) -> list[NDArray[np.int64]]:
    """Return the tree whose leaves are the clusters of :func:`partition`, from the root down.

    Clusters are numbered along the tree that made them, so their number says all: entry d
    of the list gives each node of level d + 1 its parent among the nodes of level d. Level
    0 is the root, the last level has one node for each cluster. A cluster that is final
    early goes on as an only child, so every leaf is equally deep.

    Args:
        clusters: number of clusters, at least 1.
        branches: children of a node at most, a power of two: with 16, four cuts make one level.

    Returns:
        one array of parents for each level below the root; none for a single cluster.

    >>> [level.tolist() for level in partition_tree(5)]
    [[0, 0], [0, 0, 1, 1], [0, 0, 1, 2, 3]]
    >>> [level.tolist() for level in partition_tree(5, branches=4)]
    [[0, 0, 0, 0], [0, 0, 1, 2, 3]]
    """
    check_least_one("clusters", clusters)
    if branches < 2 or branches & (branches - 1):
        raise SettingError(f"branches must be a power of two, not {branches}", remedy="2, 4, 8, 16 or 32 will do")
    every = branches.bit_length() - 1
    depth = (clusters - 1).bit_length()
    first = above = np.array([0, clusters])  # the cluster at which each node of a level starts
    levels = []
    for level in range(depth):
        sizes = np.diff(first)
        middle = (first[:-1] + (sizes + 1) // 2)[sizes > 1]
        first = np.sort(np.r_[first, middle])
        if (level + 1) % every == 0 or level + 1 == depth:
            levels.append(np.searchsorted(above, first[:-1], side="right") - 1)
            above = first
    return levels
