"""Labels that were added, renamed or removed after training, as a head sees them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from megalabel.heads.sparse.rows import no_cells
from megalabel.types import TopK

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from megalabel.heads.answers import Answers

__all__ = ["FewRows", "GivenAnswers", "Live", "MergedAnswers", "Part", "Rows", "spread_rows"]

Part: TypeAlias = "Tensor | NDArray[np.float32] | sparse.csr_matrix"
Result = TypeVar("Result")


@dataclass(frozen=True)
class Rows:
    """One row for each added or renamed label; immutable.

    Args:
        ids: [c] label ids, ascending.
        added: [c] False for a trained label with a new text.
        parts: by head and name, what the head stores for the labels, [c, ...] each.

    >>> rows = Rows(np.array([7]), np.array([True]), {"h": {"bias": np.array([0.5], dtype=np.float32)}})
    >>> other = Rows(np.array([2]), np.array([False]), {"h": {"bias": np.array([0.25], dtype=np.float32)}})
    >>> both = rows.updated(other)
    >>> both.ids.tolist(), both.parts["h"]["bias"].tolist(), both.without([7]).ids.tolist()
    ([2, 7], [0.25, 0.5], [2])
    """

    ids: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    added: NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, dtype=np.bool_))
    parts: Mapping[str, Mapping[str, Part]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.ids)

    def without(self, ids: list[int] | NDArray[np.int64]) -> Rows:
        """Return the rows of all other labels."""
        return self._take(np.flatnonzero(~np.isin(self.ids, np.asarray(ids, dtype=np.int64))))

    def updated(self, others: Rows) -> Rows:
        """Return these rows and the others, which win if both have a label."""
        kept = self.without(others.ids) if np.isin(self.ids, others.ids).any() else self
        if not len(kept):
            return others
        ids = np.concatenate([kept.ids, others.ids])
        joined = {
            head: {name: _join(part, others.parts[head][name]) for name, part in parts.items()}
            for head, parts in kept.parts.items()
        }
        both = Rows(ids, np.concatenate([kept.added, others.added]), joined)
        return both if np.all(ids[1:] > ids[:-1]) else both._take(np.argsort(ids))

    def _take(self, rows: NDArray[np.int64]) -> Rows:
        parts = {head: {name: _rows(part, rows) for name, part in named.items()} for head, named in self.parts.items()}
        return Rows(self.ids[rows], self.added[rows], parts)


def _rows(part: Part, rows: NDArray[np.int64]) -> Part:
    return part[torch.from_numpy(rows).to(part.device)] if isinstance(part, Tensor) else part[rows]


def _join(first: Part, second: Part) -> Part:
    if isinstance(first, Tensor):
        assert isinstance(second, Tensor)
        return torch.cat([first, second])
    if isinstance(first, sparse.csr_matrix):
        assert isinstance(second, sparse.csr_matrix)
        return sparse.csr_matrix(sparse.vstack([first, second], format="csr"))
    assert isinstance(second, np.ndarray)
    return np.concatenate([first, second])


@dataclass(frozen=True)
class Live:
    """The current labels, for one head.

    Args:
        first: number of trained labels.
        total: number of labels now, including removed ones: ids never change.
        ids: [c] labels added or renamed, ascending.
        added: [c] False for a trained label with a new text.
        removed: [r] removed labels, ascending.
        parts: what the head stores for the labels ``ids`` (see its ``new_rows``).
        cache: values that the head computes once for this set of labels.
    """

    first: int
    total: int
    ids: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    added: NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, dtype=np.bool_))
    removed: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    parts: Mapping[str, Any] = field(default_factory=dict)
    cache: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def unchanged(self) -> bool:
        """Whether the labels are the trained ones."""
        return not len(self.ids) and not len(self.removed) and self.total == self.first

    @property
    def hidden(self) -> NDArray[np.int64]:
        """Trained labels that the trained part of a head must not return: removed or renamed ones."""
        both = self.cached("hidden", lambda: np.union1d(self.removed, self.ids))
        return both[both < self.first]

    def cached(self, key: Any, compute: Callable[[], Result]) -> Result:
        """Return a value, computed on first use; two threads may compute it at the same time, which is harmless."""
        if key not in self.cache:
            self.cache[key] = compute()
        value: Result = self.cache[key]
        return value

    def merged(self, trained: Answers, changed: Callable[[], Answers]) -> Answers:
        """Return answers over all labels, merged from those of the trained part and of the changed labels."""
        if not len(self.ids):
            return trained if self.total == self.first else MergedAnswers(trained, None, self.ids, self.first)
        return MergedAnswers(trained, changed(), self.ids, self.first)


class FewRows:
    """A few sparse rows [c, F], multiplied in time that does not depend on F.

    >>> rows = FewRows(sparse.csr_matrix(np.array([[0, 2, 0, 1]], dtype=np.float32)))
    >>> rows.products(sparse.csr_matrix(np.array([[5, 1, 5, 3], [1, 0, 0, 0]], dtype=np.float32))).tolist()
    [[5.0], [0.0]]
    """

    def __init__(self, rows: sparse.csr_matrix) -> None:
        self.columns, places = np.unique(rows.indices, return_inverse=True)
        self.rows = sparse.csr_matrix((rows.data, places, rows.indptr), shape=(rows.shape[0], len(self.columns)))

    def products(self, queries: sparse.csr_matrix) -> NDArray[np.float32]:
        """Return the products [Q, c] with queries [Q, F]."""
        if not len(self.columns):
            return np.zeros((queries.shape[0], self.rows.shape[0]), dtype=np.float32)
        place = np.minimum(np.searchsorted(self.columns, queries.indices), len(self.columns) - 1)
        shared = self.columns[place] == queries.indices
        indptr = np.concatenate([[0], np.cumsum(shared)])[queries.indptr]
        shape = (queries.shape[0], len(self.columns))
        few = sparse.csr_matrix((queries.data[shared], place[shared], indptr), shape=shape)
        products: NDArray[np.float32] = (few @ self.rows.T).toarray().astype(np.float32, copy=False)
        return products


def spread_rows(trained: sparse.csr_matrix, changed: Any, live: Live) -> sparse.csr_matrix:
    """Return a matrix [total, F] of the trained rows with the changed ones in their places; other rows are empty."""
    empty = no_cells((1, trained.shape[1]))
    stacked = sparse.vstack([trained, *([] if changed is None else [changed]), empty], format="csr")
    order = np.full(live.total, stacked.shape[0] - 1)
    order[: trained.shape[0]] = np.arange(trained.shape[0])
    order[live.ids] = trained.shape[0] + np.arange(len(live.ids))
    return sparse.csr_matrix(stacked[order])


@dataclass(frozen=True)
class GivenAnswers:
    """Scores [Q, c] in memory; only labels with a score above ``floor`` are returned by :meth:`best`."""

    scores: NDArray[np.float32]
    floor: float = -np.inf

    def best(self, k: int, exclude: sparse.csr_matrix | None) -> TopK:
        """Sort each row; ties go to the lower label, and -1 fills a row with fewer than k."""
        visible = np.where(self.scores > self.floor, self.scores, np.float32(-np.inf))
        if exclude is not None:
            visible[exclude.nonzero()] = -np.inf
        order = np.argsort(-visible, axis=1, kind="stable")[:, :k]
        scores = np.take_along_axis(visible, order, axis=1)
        return TopK(np.where(scores > -np.inf, order, -1), scores)

    def score(self, candidates: NDArray[np.int64]) -> NDArray[np.float32]:
        """Look the candidates up."""
        scores: NDArray[np.float32] = np.take_along_axis(self.scores, np.maximum(candidates, 0), axis=1)
        return scores


@dataclass(frozen=True)
class MergedAnswers:
    """Labels of the training and labels changed since, as one set.

    Args:
        trained: answers over labels 0 to first - 1; it must not find those that changed.
        changed: answers over the changed labels, by their place in ``ids``; None if there are none.
        ids: [c] ids of the changed labels, ascending.
        first: number of labels of the training.

    >>> trained = GivenAnswers(np.array([[0.9, 0.2]], dtype=np.float32))
    >>> changed = GivenAnswers(np.array([[0.4]], dtype=np.float32))
    >>> both = MergedAnswers(trained, changed, np.array([2]), 2)
    >>> both.best(3, None).ids.tolist(), both.score(np.array([[2, 1]])).round(1).tolist()
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

    def score(self, candidates: NDArray[np.int64]) -> NDArray[np.float32]:
        """Score trained and changed labels separately."""
        if self.changed is None:
            return self.trained.score(candidates)
        place = np.minimum(np.searchsorted(self.ids, candidates), len(self.ids) - 1)
        changed = self.ids[place] == candidates
        old = self.trained.score(np.where(changed, -1, candidates))
        return np.where(changed, self.changed.score(np.where(changed, place, 0)), old)
