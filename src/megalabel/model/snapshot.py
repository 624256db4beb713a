"""A model at one moment: predictions with all that is known of their labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from megalabel.model.explain import _frequency
from megalabel.model.prediction import none_for_blank

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from megalabel.model.labels import LabelState
    from megalabel.model.model import Model
    from megalabel.types import TopK

__all__ = ["Snapshot"]


@dataclass(frozen=True)
class Snapshot:
    """The labels of a model as they were when this was taken; whatever changes meanwhile, all answers fit together.

    >>> from megalabel import load, train
    >>> data = load("synthetic:points=400,labels=30")
    >>> small = ["encoder.source=null", "encoder.options={dim: 8, words: 64, bigrams: 0, characters: 0}"]
    >>> model = train("unidec-cpu", data, changes=["training.epochs=1", "batching.batch_size=64", *small])
    >>> before = Snapshot.of(model)
    >>> model.add_labels(["a label nobody trained on"], ["new"])
    ['new']
    >>> before.find("nobody").tolist(), Snapshot.of(model).find("nobody").tolist()
    ([], [30])
    >>> Snapshot.of(model).points(np.array([30])).tolist(), Snapshot.frequency(0)
    ([0], 'unseen')
    """

    model: Model
    state: LabelState

    @classmethod
    def of(cls, model: Model) -> Snapshot:
        """Take the labels as they are now."""
        return cls(model, model.live.current())

    def search(self, texts: Sequence[str], k: int, *, heads: str = "all", tail: float | None = None) -> TopK:
        """Return ids and scores [n, k] for texts, k at most the number of labels; ids are -1 beyond the last."""
        most = min(k, len(self.state.labels))
        best = self.model._search(self.state, texts, most, heads, None, self.model.chosen_tail(tail))
        return none_for_blank(best, texts)

    def head_scores(self, texts: Sequence[str], ids: NDArray[np.int64]) -> dict[str, NDArray[np.float32]]:
        """Return the scores [n, k] of labels [n, k] by every head; where the id is -1 a score means nothing."""
        return {
            name: answer.score(ids)
            for name, answer in self.model._answers(self.state, self.model._queries(self.state, texts)).items()
        }

    def points(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return how many training points labels have, 0 for those added after training."""
        trained = self.state.stats.trained
        if trained is None:  # of a model whose card does not say
            train = self.model.train_rows
            trained = self.state.first if train is None else train.targets.shape[1]
        return np.where(ids < trained, self.state.stats.counts[ids], 0)

    @staticmethod
    def frequency(points: int) -> str:
        """Name the group of labels with so many training points: head, torso, tail or unseen."""
        return _frequency(points)

    def find(self, words: str | None = None) -> NDArray[np.int64]:
        """Return the ids of labels that are not removed, ascending: all, or those with the words in text or uid."""
        labels = self.state.labels
        if not words:
            return np.setdiff1d(np.arange(len(labels)), self.state.removed, assume_unique=True)
        wanted = words.casefold()
        both = zip(labels.texts, labels.uids, strict=True)
        matches = [
            place for place, (text, uid) in enumerate(both) if wanted in text.casefold() or wanted in uid.casefold()
        ]
        return np.setdiff1d(np.array(matches, dtype=np.int64), self.state.removed, assume_unique=True)

    def known(self, uid: str) -> int | None:
        """Return the id of the label with this uid; None where no label has it, or had it and was removed."""
        label = self.model.live.ids().get(uid)  # only ever grows
        if label is None or label >= len(self.state.labels) or label in self.state.removed:
            return None
        return label
