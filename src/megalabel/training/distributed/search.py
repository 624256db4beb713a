"""Search over labels that are sharded over ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from megalabel.types import TopK

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from scipy.sparse import csr_matrix
    from torch import Tensor

    from megalabel.ranks import Ranks
    from megalabel.types import Index

__all__ = ["LabelSearch"]

_BLOCK = 16_384  # queries per exchange


class LabelSearch:
    """An index over the labels of all ranks, each of which searches its shard; see :class:`megalabel.types.Index`.

    Every rank searches for the same queries and gets the same result. Exact search returns what one
    process would return; ties go to the lower id.

    Args:
        index: over the labels of this rank's shard.
        labels: number of labels of all ranks.
        ranks: the processes that hold the shards.
    """

    def __init__(self, index: Index, labels: int, ranks: Ranks) -> None:
        self.index, self.ranks, self.shard = index, ranks, ranks.share(labels)

    def search(self, vectors: Tensor, k: int, exclude: csr_matrix | None = None) -> TopK:
        """Rank the labels of all ranks for vectors [Q, d]; ``exclude`` [Q, L] removes pairs before the cut to k."""
        if self.ranks.alone:
            return self.index.search(vectors, k, exclude=exclude)
        local = None if exclude is None else exclude.tocsc()[:, self.shard.start : self.shard.stop].tocsr()
        parts = [
            self._block(vectors[start : start + _BLOCK], k, None if local is None else local[start : start + _BLOCK])
            for start in range(0, max(1, len(vectors)), _BLOCK)
        ]
        return TopK(np.concatenate([part.ids for part in parts]), np.concatenate([part.scores for part in parts]))

    def _block(self, vectors: Tensor, k: int, exclude: csr_matrix | None) -> TopK:
        top = self.index.search(vectors, k, exclude=exclude)
        ids = self._gather_columns(np.where(top.ids >= 0, top.ids + self.shard.start, -1))
        scores = self._gather_columns(top.scores)
        best = np.argsort(-scores, axis=1, kind="stable")[:, :k]  # ranks, and so ids, are in order
        return TopK(np.take_along_axis(ids, best, axis=1), np.take_along_axis(scores, best, axis=1))

    def _gather_columns(self, part: NDArray[Any]) -> NDArray[Any]:
        """Return the columns [Q, k] of all ranks side by side."""
        stacked = self.ranks.gather(torch.from_numpy(part), [len(part)] * self.ranks.world).numpy()
        return np.concatenate(np.split(stacked, self.ranks.world), axis=1)
