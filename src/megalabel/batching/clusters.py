"""Balanced clusters of vectors, so that similar rows can share a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from megalabel.batching._random import generator
from megalabel.errors import SettingError
from megalabel.graphs._dense_rows import DenseRows
from megalabel.graphs._two_means import two_means

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

__all__ = ["balanced_clusters"]


@torch.no_grad()
def balanced_clusters(vectors: Tensor | NDArray[np.floating], size: int, *, seed: int) -> NDArray[np.int64]:
    """Split rows into ceil(N / size) clusters of near-equal size by recursive balanced 2-means on cosine.

    Each cluster is split in two: from two random rows as centres, rows are sorted by the
    difference of their similarities to the two and cut where both sides get their share
    of the final clusters (the middle, where their number is even); centres become the
    normalised means, until the mean similarity to them grows by less than 1e-4. Batches
    of UniDEC (Kharbanda et al. 2024, arXiv 2405.03714) and NGAME (Dahiya et al., WSDM 2023).
    The number of clusters need not be a power of two: sizes are floor(N / K) and
    ceil(N / K), never above ``size``.

    All clusters of a level are split together. One with more than 32,768 rows finds its
    centres on a random 32,768 of them; all rows are then split. The vectors are copied only
    if they are not float32; further memory is at most that of two centres per cluster. The
    same seed gives the same clusters, for any number of threads.

    Args:
        vectors: [N, d], normalised or not; the work is done on their device.
        size: largest number of rows per cluster.
        seed: seed of the first centres and samples.

    Returns:
        [N] the cluster of each row, 0 to K - 1; neighbouring clusters are similar.

    >>> points = torch.tensor([[1.0, 0.1], [-1, 0.1], [1, 0.2], [-1, 0.2], [1, 0.3], [-1, 0.3]])
    >>> cluster = balanced_clusters(points, size=3, seed=0)
    >>> bool(cluster[0] == cluster[2] == cluster[4] != cluster[1])
    True
    """
    rows = DenseRows(vectors)
    if size < 1:
        raise SettingError(f"the size of a cluster must be at least 1, not {size}")
    if len(rows) == 0:
        return np.empty(0, dtype=np.int64)
    return two_means(rows, -(-len(rows) // size), lambda level: generator(seed, "clusters", level))
