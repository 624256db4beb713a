"""The labels of a model at one moment, and how queries are answered over them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from scipy import sparse
from torch import Tensor

from megalabel.heads.answers import Answers, DenseAnswers, LinearAnswers, OverlapAnswers, StoredAnswers
from megalabel.heads.linear import Linear
from megalabel.heads.overlap import Overlap
from megalabel.index import ExactIndex
from megalabel.model.few_rows import FewRows
from megalabel.model.merged_answers import GivenAnswers, MergedAnswers
from megalabel.model.rows import Rows
from megalabel.training.fitted import NGRAMS, Fitted
from megalabel.training.vectors import LabelSide, fold_labels

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from megalabel.data.dataset import Labels
    from megalabel.heads.memory import Memory
    from megalabel.model.built import Built
    from megalabel.model.seen import Seen

__all__ = ["State"]

Made = TypeVar("Made")
Scorer = TypeVar("Scorer", Linear, Overlap)


@dataclass(frozen=True)
class State:
    """All that a change of labels changes; a reader takes it once and is done with it.

    Args:
        labels: texts and uids, of removed labels too: ids never move.
        seen: label frequencies; a label added later counts as seen once.
        fitted: heads as fitted, and the same frequencies.
        first: labels of the training; the others were added.
        removed: [r] ids that are no longer found, ascending.
        rows: what labels added and renamed are scored by.
    """

    labels: Labels
    seen: Seen
    fitted: Fitted
    first: int
    removed: NDArray[np.int64]
    rows: Rows = field(default_factory=Rows)
    _made: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)  # on first use, of this moment alone

    def without(self, ids: NDArray[np.int64]) -> State:
        """Return the state in which these labels are no longer found."""
        return replace(self, removed=np.union1d(self.removed, ids), rows=self.rows.without(ids), _made={})

    def having(self, labels: Labels, rows: Rows) -> State:
        """Return the state with these labels, where the changed ones have new rows; more labels than before are new."""
        more = len(labels) - len(self.labels)
        fitted = replace(self.fitted, counts=np.concatenate([self.fitted.counts, np.ones(more, dtype=np.int64)]))
        made = {}
        if more:  # and nothing else has changed: what is there only grows
            made = {
                key: index.add(self._folded(rows, dict(key[1])))
                for key, index in list(self._made.items())
                if isinstance(index, ExactIndex) and key[0] == "rows"
            }
        return replace(
            self, labels=labels, seen=self.seen.grown(more), fitted=fitted, rows=self.rows.replaced(rows), _made=made
        )

    @property
    def alive(self) -> int:
        """The number of labels that can be found."""
        return len(self.labels) - len(self.removed)

    def dense(self, built: Built, queries: Tensor) -> Answers:
        """Answer by products: ``built`` holds the labels of the training, folded with its weights."""
        weights = built.weights
        if len(self._silent):
            made = self._once(("trained", built.key), lambda: (built, built.without(self._silent)))
            if made[0] is not built:  # another index was built since
                made = self._made["trained", built.key] = built, built.without(self._silent)
            built = made[1]
        trained = built.answers(queries, self.first)
        return self._merged(trained, lambda: DenseAnswers(self._rows_index(weights), queries))

    def fitted_answers(self, texts: Sequence[str], vectors: Mapping[str, Tensor]) -> dict[str, Answers]:
        """Answer by the heads that train no encoder."""
        fitted = self.fitted
        if not len(self.rows) and not len(self.removed):
            return fitted.answers(texts, vectors)
        views: dict[str, Any] = {name: part.cpu().numpy() for name, part in vectors.items()}
        if fitted.ngrams is not None:
            views[NGRAMS] = fitted.ngrams.encode(texts)
        return {name: self._fitted_answer(name, texts, views) for name in fitted.heads}

    def _fitted_answer(self, name: str, texts: Sequence[str], views: Mapping[str, Any]) -> Answers:
        head = self.fitted.heads[name]
        if isinstance(head, Overlap):
            words = self._once(("silent", name), lambda: _silenced(head, self._silent))

            def shared() -> Answers:
                rows = self._once(("rows", name), lambda: FewRows(_csr(self.rows.parts[f"words/{name}"])))
                return GivenAnswers(rows.products(head.query_rows(texts)), 0.0)

            return self._merged(OverlapAnswers(words, texts), shared)
        if isinstance(head, Linear):
            linear = self._once(("silent", name), lambda: _silenced(head, self._silent))

            def scored() -> Answers:
                rows = self._once(("rows", name), lambda: FewRows(_csr(self.rows.parts[f"weights/{name}"])))
                return GivenAnswers(rows.products(views[NGRAMS]) + self.rows.parts[f"base/{name}"])

            return self._merged(LinearAnswers(linear, views[NGRAMS]), scored)
        return StoredAnswers(self._votes(name, head, views[self.fitted.of[name]]))

    def _merged(self, trained: Answers, changed: Callable[[], Answers]) -> Answers:
        if not len(self.rows):
            return (
                trained if len(self.labels) == self.first else MergedAnswers(trained, None, self.rows.ids, self.first)
            )
        return MergedAnswers(trained, changed(), self.rows.ids, self.first)

    def _rows_index(self, weights: Mapping[str, float]) -> ExactIndex:
        """Return an index of the changed labels."""
        return self._once(("rows", tuple(weights.items())), lambda: ExactIndex(self.folded(weights)))

    def folded(self, weights: Mapping[str, float]) -> Tensor:
        """Return the vectors [c, d] of the changed labels, folded with these weights."""
        return self._folded(self.rows, weights)

    @staticmethod
    def _folded(rows: Rows, weights: Mapping[str, float]) -> Tensor:
        parts: Any = rows.parts
        side = {name: LabelSide(parts[f"vectors/{name}"], parts.get(f"bias/{name}")) for name in weights}
        return fold_labels(side, weights)[0]

    def _votes(self, name: str, memory: Memory, queries: Any) -> sparse.csr_matrix:
        """Return what :meth:`Memory.scores` would if the texts of added labels were training rows."""
        found = memory.neighbours(queries, memory.nearest)
        points = memory.targets_.shape[0]
        ids, cosines = found.ids, found.scores
        own = np.flatnonzero(self.rows.added)
        if len(own):
            near = self._cosines(name, queries, own)
            more = np.where(near > 0, np.arange(points, points + len(own)), -1)
            ids = np.concatenate([ids, more], axis=1)
            cosines = np.concatenate([cosines, np.where(near > 0, near, np.float32(-np.inf))], axis=1)
            order = np.lexsort((ids, -cosines), axis=1)[:, : memory.nearest]
            ids, cosines = np.take_along_axis(ids, order, axis=1), np.take_along_axis(cosines, order, axis=1)
        real = ids >= 0
        weights = np.where(real, cosines, 0).astype(np.float64) ** memory.power * real
        weights /= np.maximum(weights.sum(axis=1, keepdims=True), np.finfo(np.float64).tiny)
        indptr = np.concatenate([[0], np.cumsum(real.sum(axis=1))])
        votes = sparse.csr_matrix(
            (weights[real].astype(np.float32), ids[real], indptr), shape=(len(ids), points + len(own))
        )
        scores = sparse.csr_matrix(votes @ self._once(("targets", name), lambda: self.targets(memory, own)))
        scores.data[np.isin(scores.indices, self.removed)] = 0
        scores.eliminate_zeros()
        scores.sort_indices()
        return scores

    def _cosines(self, name: str, queries: Any, own: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the cosines [Q, a] of queries and the texts of added labels."""
        rows = self._once(("rows", name), lambda: self.rows.parts[f"row/{name}"][own])
        if sparse.issparse(rows):
            found: NDArray[np.float32] = self._once(("few", name), lambda: FewRows(_csr(rows))).products(queries)
            return found
        lengths = np.linalg.norm(queries, axis=1, keepdims=True)
        return np.asarray(queries / np.where(lengths > 0, lengths, 1) @ rows.T, dtype=np.float32)

    def targets(self, memory: Memory, own: NDArray[np.int64]) -> sparse.csr_matrix:
        """Return the targets of the training rows and of those made of added labels."""
        known, total = memory.targets_, len(self.labels)
        ones = np.ones(len(own), dtype=np.float32)
        indptr = np.concatenate([known.indptr, known.nnz + 1 + np.arange(len(own))])
        parts = np.concatenate([known.data, ones]), np.concatenate([known.indices, self.rows.ids[own]]), indptr
        return sparse.csr_matrix(parts, shape=(known.shape[0] + len(own), total))

    @property
    def _silent(self) -> NDArray[np.int64]:
        """Labels of the training that their own heads do not find: removed, or with rows here."""
        both = self._once("silent", lambda: np.union1d(self.removed, self.rows.ids))
        return both[both < self.first]

    def _once(self, key: Any, make: Callable[[], Made]) -> Made:
        """Return what is made once; two threads may make the same at the same time, which does no harm."""
        if key not in self._made:
            self._made[key] = make()
        found: Made = self._made[key]
        return found


def _silenced(head: Scorer, gone: NDArray[np.int64]) -> Scorer:
    """Return a head that no longer finds some labels."""
    return head.without(gone) if len(gone) else head


def _csr(part: Any) -> sparse.csr_matrix:
    assert isinstance(part, sparse.csr_matrix)
    return part
