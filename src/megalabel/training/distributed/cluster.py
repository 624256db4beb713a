"""Clusters of queries whose vectors lie with several ranks."""

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

    No rank sees the vectors of another: what is exchanged are two centres for every cluster and one
    number for every row. Sums are added up in another order than in one process, so that a row that
    lies as near to one centre as to the other, to seven digits, may come out on the other side.

    Args:
        vectors: [n, d] of the rows that are here.
        rows: [n] their numbers among all, rising.
        total: rows of all ranks.
        size: rows per cluster at most.
        seed: decides first centres and samples.
        ranks: who has the other rows.
    """
    if ranks.alone:
        return balanced_clusters(vectors, size, seed=seed)
    return two_means(
        _Rows(vectors, rows, total, ranks), -(-total // size), lambda level: generator(seed, "clusters", level)
    )


class _Rows:
    """Rows of all ranks, as two_means wants them; see :class:`megalabel.graphs._two_means.Rows`."""

    def __init__(self, vectors: Tensor, rows: NDArray[np.int64], total: int, ranks: Ranks) -> None:
        self.here, self.ranks = DenseRows(vectors), ranks
        self.place = np.full(total, -1, dtype=np.int64)  # of each row among those that are here
        self.place[rows] = np.arange(len(rows))

    def __len__(self) -> int:
        return len(self.place)

    def differences(self, first: NDArray[np.int64], second: NDArray[np.int64]) -> Tensor:
        """Return row ``first`` minus row ``second`` for each pair."""
        vectors, scale = self.here.vectors, self.here.scale
        found = vectors.new_zeros(len(first), vectors.shape[1])
        for sign, which in ((1, first), (-1, second)):
            local, mine = self._mine(which)
            found[mine] += sign * vectors[local] * scale[local, None]
        return self.ranks.sum(found)

    def take(self, axes: Tensor, which: NDArray[np.int64]) -> Tensor:
        """Return some of the axes."""
        return self.here.take(axes, which)

    def put(self, axes: Tensor, which: NDArray[np.int64], new: Tensor) -> None:
        """Replace some of the axes."""
        self.here.put(axes, which, new)

    def along(self, rows: NDArray[np.int64], group: NDArray[np.int64], axes: Tensor) -> NDArray[np.floating]:
        """Return the product [n] of each row (rising) with the axis of its group."""
        found = np.zeros(len(rows), dtype=np.float32)
        mine = self.place[rows] >= 0
        if mine.any():
            found[mine] = self.here.along(self.place[rows[mine]], group[mine], axes)
        whole: NDArray[np.floating] = self.ranks.sum(torch.from_numpy(found)).numpy()
        return whole

    def halves(self, rows: NDArray[np.int64], starts: NDArray[np.int64]) -> tuple[Tensor, NDArray[np.floating]]:
        """Return the axes between neighbouring means, and the length of the sums of rows [2 G]."""
        local, mine = self._mine(rows)
        before = torch.cat([mine.new_zeros(1, dtype=torch.int64), mine.cumsum(0)])  # rows that are here before each
        offsets = before[torch.from_numpy(starts).to(mine.device)]
        weights = self.here.scale[local]
        sums = self.ranks.sum(embedding_bag(local, self.here.vectors, offsets, mode="sum", per_sample_weights=weights))
        lengths: NDArray[np.floating] = torch.linalg.vector_norm(sums, dim=1).cpu().numpy()
        return normalize(sums[0::2]) - normalize(sums[1::2]), lengths

    def _mine(self, rows: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """Return the places [m] of those rows that are here, and which [n] of them those are."""
        place = torch.from_numpy(self.place[rows]).to(self.here.vectors.device)
        mine = place >= 0
        return place[mine], mine
