"""The scores of a head for some queries: its best labels, and the scores of given candidates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import numpy as np
import torch
from scipy import sparse

from megalabel.index.engines import EngineIndex
from megalabel.index.products import products
from megalabel.types import TopK

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from megalabel.index import AnyIndex


__all__ = ["Answers", "DenseAnswers", "SearchedAnswers", "StoredAnswers"]

_GATHER = 1 << 24  # vector components or scores held at a time
_DEAR = 128  # gathering one label costs about as much as this many labels in a matrix product


class Answers(Protocol):
    """What fusion needs of every head for Q queries."""

    def best(self, k: int, exclude: sparse.csr_matrix | None) -> TopK:
        """Return the k best labels; ``exclude`` [Q, L] removes pairs before the cut to k."""

    def score(self, candidates: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the scores [Q, C] of candidate labels; undefined for candidate -1."""


@dataclass(frozen=True)
class DenseAnswers:
    """Products of query vectors [Q, d] with the label vectors of an index."""

    index: AnyIndex | EngineIndex
    queries: torch.Tensor

    def best(self, k: int, exclude: sparse.csr_matrix | None) -> TopK:
        """Search all labels."""
        return self.index.search(self.queries, k, exclude=exclude)

    @torch.no_grad()
    def score(self, candidates: NDArray[np.int64]) -> NDArray[np.float32]:
        """Multiply with the candidates only; on other devices than a CPU with all labels if these are not many more."""
        if isinstance(self.index, EngineIndex):
            return self.index.score(self.queries, candidates)
        labels = self.index.vectors
        if labels.device.type == "cpu":
            return products(labels, self.queries, candidates)
        ids = torch.from_numpy(np.maximum(candidates, 0)).to(labels.device)
        few = len(labels) <= _DEAR * ids.shape[1]
        rows = max(1, _GATHER // max(1, len(labels) if few else ids.shape[1] * self.queries.shape[1]))
        parts = [
            (queries @ labels.T).gather(1, some) if few else torch.bmm(labels[some], queries.unsqueeze(2)).squeeze(2)
            for some, queries in zip(torch.split(ids, rows), torch.split(self.queries, rows), strict=True)
        ]
        scores: NDArray[np.float32] = (
            torch.cat(parts).cpu().numpy() if parts else np.empty(candidates.shape, np.float32)
        )
        return scores


Queries = TypeVar("Queries")
_Queries = TypeVar("_Queries", contravariant=True)


class Searches(Protocol[_Queries]):
    """What searches labels for queries of some kind: rows of features, or texts."""

    def search(self, queries: _Queries, k: int, exclude: sparse.csr_matrix | None = None) -> TopK:
        """Return the k best labels of each query."""

    def scores(self, queries: _Queries, candidates: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the scores [Q, C] of some labels of each query."""


@dataclass(frozen=True)
class SearchedAnswers(Generic[Queries]):
    """The answers of a head that searches by itself, for given queries."""

    head: Searches[Queries]
    queries: Queries

    def best(self, k: int, exclude: sparse.csr_matrix | None) -> TopK:
        """Search the labels."""
        return self.head.search(self.queries, k, exclude=exclude)

    def score(self, candidates: NDArray[np.int64]) -> NDArray[np.float32]:
        """Score the candidates only."""
        return self.head.scores(self.queries, candidates)


@dataclass(frozen=True)
class StoredAnswers:
    """Sparse scores [Q, L] in memory, all above zero; the other labels score 0.

    >>> answers = StoredAnswers(sparse.csr_matrix(np.array([[0, 0.25, 0.75]], dtype=np.float32)))
    >>> answers.best(2, None).ids.tolist(), answers.score(np.array([[0, 2]])).tolist()
    ([[2, 1]], [[0.0, 0.75]])
    """

    scores: sparse.csr_matrix

    def best(self, k: int, exclude: sparse.csr_matrix | None) -> TopK:
        """Sort each row; ties go to the lower label, and a short row is filled with -1."""
        matrix = self.scores
        if exclude is not None:
            out = sparse.csr_matrix((np.ones(exclude.nnz, np.float32), exclude.indices, exclude.indptr), exclude.shape)
            matrix = sparse.csr_matrix(matrix - matrix.multiply(out))
            matrix.eliminate_zeros()
        rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
        order = np.lexsort((matrix.indices, -matrix.data, rows))
        place = np.arange(len(rows)) - matrix.indptr[rows]
        order, place, rows = order[place < k], place[place < k], rows[place < k]
        ids = np.full((matrix.shape[0], k), -1, dtype=np.int64)
        scores = np.full((matrix.shape[0], k), -np.inf, dtype=np.float32)
        ids[rows, place], scores[rows, place] = matrix.indices[order], matrix.data[order]
        return TopK(ids, scores)

    def score(self, candidates: NDArray[np.int64]) -> NDArray[np.float32]:
        """Look up the candidates."""
        width = np.int64(self.scores.shape[1])
        rows = np.repeat(np.arange(self.scores.shape[0], dtype=np.int64), np.diff(self.scores.indptr))
        keys = rows * width + self.scores.indices  # ascending: columns are sorted
        wanted = np.arange(len(candidates), dtype=np.int64)[:, None] * width + np.maximum(candidates, 0)
        place = np.minimum(np.searchsorted(keys, wanted), max(0, len(keys) - 1))
        if len(keys) == 0:
            return np.zeros(candidates.shape, dtype=np.float32)
        return np.where(keys[place] == wanted, self.scores.data[place], np.float32(0))
