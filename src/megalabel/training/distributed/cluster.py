"""Clusters of queries whose vectors are distributed over ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch.nn.functional import embedding_bag, normalize

from megalabel.batching import generator
from megalabel.batching.clusters import balanced_clusters
from megalabel.graphs._dense_rows import DenseRows
from megalabel.graphs._two_means import two_means

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from megalabel.ranks import Ranks

__all__ = ["cluster_queries"]


@torch.no_grad()
def cluster_queries(
    vectors: Tensor, rows: NDArray[np.int64], total: int, size: int, *, seed: int, ranks: Ranks
) -> NDArray[np.int64]:
    """Return the clusters [total] that :func:`megalabel.batching.clusters.balanced_clusters` makes of all ranks' rows.

    No rank sees the vectors of another: the ranks exchange two centres per cluster and one number per row.
    Sums are computed in a different order than in one process, so a row that is equally near to both centres,
    to seven digits, may end up in the other half.

    Args:
        vectors: [n, d] of the rows of this rank.
        rows: [n] their numbers among all rows, ascending.
        total: number of rows of all ranks.
        size: largest number of rows per cluster.
        seed: seed of the first centres and samples.
        ranks: the processes that hold the rows.
    """
    if ranks.alone:
        return balanced_clusters(vectors, size, seed=seed)
    return two_means(
        _Rows(vectors, rows, total, ranks), -(-total // size), lambda level: generator(seed, "clusters", level)
    )


class _Rows:
    """Rows of all ranks in the form that two_means expects; see :class:`megalabel.graphs._two_means.Rows`."""

    def __init__(self, vectors: Tensor, rows: NDArray[np.int64], total: int, ranks: Ranks) -> None:
        self.local, self.ranks = DenseRows(vectors), ranks
        self.position = np.full(total, -1, dtype=np.int64)  # position of each row among those of this rank
        self.position[rows] = np.arange(len(rows))

    def __len__(self) -> int:
        return len(self.position)

    def differences(self, first: NDArray[np.int64], second: NDArray[np.int64]) -> Tensor:
        """Return row ``first`` minus row ``second`` for each pair."""
        vectors, scale = self.local.vectors, self.local.scale
        differences = vectors.new_zeros(len(first), vectors.shape[1])
        for sign, which in ((1, first), (-1, second)):
            index, mine = self._local(which)
            differences[mine] += sign * vectors[index] * scale[index, None]
        return self.ranks.sum(differences)

    def take(self, axes: Tensor, which: NDArray[np.int64]) -> Tensor:
        """Return some of the axes."""
        return self.local.take(axes, which)

    def put(self, axes: Tensor, which: NDArray[np.int64], new: Tensor) -> None:
        """Replace some of the axes."""
        self.local.put(axes, which, new)

    def along(self, rows: NDArray[np.int64], group: NDArray[np.int64], axes: Tensor) -> NDArray[np.floating]:
        """Return the product [n] of each row (ascending) with the axis of its group."""
        products = np.zeros(len(rows), dtype=np.float32)
        mine = self.position[rows] >= 0
        if mine.any():
            products[mine] = self.local.along(self.position[rows[mine]], group[mine], axes)
        whole: NDArray[np.floating] = self.ranks.sum(torch.from_numpy(products)).numpy()
        return whole

    def halves(self, rows: NDArray[np.int64], starts: NDArray[np.int64]) -> tuple[Tensor, NDArray[np.floating]]:
        """Return the axes between neighbouring means, and the length of the sums of rows [2 G]."""
        index, mine = self._local(rows)
        before = torch.cat([mine.new_zeros(1, dtype=torch.int64), mine.cumsum(0)])  # rows of this rank before each
        offsets = before[torch.from_numpy(starts).to(mine.device)]
        weights = self.local.scale[index]
        sums = self.ranks.sum(embedding_bag(index, self.local.vectors, offsets, mode="sum", per_sample_weights=weights))
        lengths: NDArray[np.floating] = torch.linalg.vector_norm(sums, dim=1).cpu().numpy()
        return normalize(sums[0::2]) - normalize(sums[1::2]), lengths

    def _local(self, rows: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """Return the positions [m] of the rows that this rank holds, and a mask [n] of them."""
        position = torch.from_numpy(self.position[rows]).to(self.local.vectors.device)
        mine = position >= 0
        return position[mine], mine
