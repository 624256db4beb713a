"""Search over labels that lie with several ranks, as if they lay in one place."""

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

_BLOCK = 16_384  # queries whose answers are exchanged at once


class LabelSearch:
    """An index over the labels of all ranks, each of which searches its own; see :class:`megalabel.types.Index`.

    Every rank asks the same queries and gets the same answer. Exact search finds what it would find in
    one process; ties go to the lower id.

    Args:
        index: over the labels that are here.
        labels: how many labels there are in all.
        ranks: who has the others.
    """

    def __init__(self, index: Index, labels: int, ranks: Ranks) -> None:
        self.index, self.ranks, self.own = index, ranks, ranks.share(labels)

    def search(self, vectors: Tensor, k: int, exclude: csr_matrix | None = None) -> TopK:
        """Rank the labels of all ranks for vectors [Q, d]; ``exclude`` [Q, L] leaves pairs out before the cut to k."""
        if self.ranks.alone:
            return self.index.search(vectors, k, exclude=exclude)
        here = None if exclude is None else exclude.tocsc()[:, self.own.start : self.own.stop].tocsr()
        parts = [
            self._block(vectors[start : start + _BLOCK], k, None if here is None else here[start : start + _BLOCK])
            for start in range(0, max(1, len(vectors)), _BLOCK)
        ]
        return TopK(np.concatenate([part.ids for part in parts]), np.concatenate([part.scores for part in parts]))

    def _block(self, vectors: Tensor, k: int, exclude: csr_matrix | None) -> TopK:
        found = self.index.search(vectors, k, exclude=exclude)
        ids = self._beside(np.where(found.ids >= 0, found.ids + self.own.start, -1))
        scores = self._beside(found.scores)
        best = np.argsort(-scores, axis=1, kind="stable")[:, :k]  # ranks, and so ids, are in order
        return TopK(np.take_along_axis(ids, best, axis=1), np.take_along_axis(scores, best, axis=1))

    def _beside(self, part: NDArray[Any]) -> NDArray[Any]:
        """Put the columns [Q, k] of all ranks side by side."""
        whole = self.ranks.gather(torch.from_numpy(part), [len(part)] * self.ranks.world).numpy()
        return np.concatenate(np.split(whole, self.ranks.world), axis=1)
