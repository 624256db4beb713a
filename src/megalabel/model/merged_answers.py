"""Answers over labels of the training and labels changed since."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from megalabel.types import TopK

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from scipy import sparse

    from megalabel.heads.answers import Answers

__all__ = ["GivenAnswers", "MergedAnswers"]


@dataclass(frozen=True)
class GivenAnswers:
    """Scores [Q, c] that are there already; a score must be above ``floor`` to be found."""

    scores: NDArray[np.float32]
    floor: float = -np.inf

    def best(self, k: int, exclude: sparse.csr_matrix | None) -> TopK:
        """Sort each row; of equal scores the lower label comes first, and -1 where there are no more."""
        found = np.where(self.scores > self.floor, self.scores, np.float32(-np.inf))
        if exclude is not None:
            found[exclude.nonzero()] = -np.inf
        order = np.argsort(-found, axis=1, kind="stable")[:, :k]
        scores = np.take_along_axis(found, order, axis=1)
        return TopK(np.where(scores > -np.inf, order, -1), scores)

    def of(self, candidates: NDArray[np.int64]) -> NDArray[np.float32]:
        """Look the candidates up."""
        found: NDArray[np.float32] = np.take_along_axis(self.scores, np.maximum(candidates, 0), axis=1)
        return found


@dataclass(frozen=True)
class MergedAnswers:
    """Two sets of labels as one.

    Args:
        trained: answers over labels 0 to first - 1; it does not find those that changed.
        changed: answers over the changed labels, by their place in ``ids``; None where there are none.
        ids: [c] ids of the changed labels, ascending.
        first: the number of labels of the training.

    >>> trained = GivenAnswers(np.array([[0.9, 0.2]], dtype=np.float32))
    >>> changed = GivenAnswers(np.array([[0.4]], dtype=np.float32))
    >>> both = MergedAnswers(trained, changed, np.array([2]), 2)
    >>> both.best(3, None).ids.tolist(), both.of(np.array([[2, 1]])).round(1).tolist()
    ([[0, 2, 1]], [[0.4000000059604645, 0.20000000298023224]])
    """

    trained: Answers
    changed: Answers | None
    ids: NDArray[np.int64]
    first: int

    def best(self, k: int, exclude: sparse.csr_matrix | None) -> TopK:
        """Merge the best of both."""
        old = self.trained.best(k, None if exclude is None else exclude[:, : self.first])
        if self.changed is None:
            return old
        new = self.changed.best(min(k, len(self.ids)), None if exclude is None else exclude[:, self.ids])
        ids = np.concatenate([old.ids, np.where(new.ids >= 0, self.ids[new.ids], -1)], axis=1)
        scores = np.concatenate([old.scores, new.scores], axis=1)
        order = np.lexsort((ids, -scores), axis=1)[:, :k]
        return TopK(np.take_along_axis(ids, order, axis=1), np.take_along_axis(scores, order, axis=1))

    def of(self, candidates: NDArray[np.int64]) -> NDArray[np.float32]:
        """Ask for each candidate where it is."""
        if self.changed is None:
            return self.trained.of(candidates)
        place = np.minimum(np.searchsorted(self.ids, candidates), len(self.ids) - 1)
        changed = self.ids[place] == candidates
        old = self.trained.of(np.where(changed, -1, candidates))
        return np.where(changed, self.changed.of(np.where(changed, place, 0)), old)
