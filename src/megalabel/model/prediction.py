"""The labels predicted for a text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from megalabel.data.dataset import Labels
    from megalabel.types import TopK

__all__ = ["PredictedRow", "Prediction", "as_predictions", "named_parents", "none_for_blank"]


@dataclass(frozen=True, slots=True)
class Prediction:
    """One label predicted for one text; ``parents`` are (uid, name) of its next broader labels, if there are any."""

    id: int
    uid: str
    text: str
    score: float
    parents: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class PredictedRow:
    """The labels predicted for one text, best first; ``heads`` holds their scores by each head, if requested."""

    uid: str
    text: str
    labels: Sequence[Prediction]
    heads: dict[str, list[float]] = field(default_factory=dict)


def named_parents(labels: Labels, label: int) -> tuple[tuple[str, str], ...]:
    """Return (uid, name) of the next broader labels."""
    return tuple((labels.uids[place], labels.name(place)) for place in labels.parents(label))


def none_for_blank(best: TopK, texts: Sequence[str]) -> TopK:
    """Return a ranking [n, k] without labels for texts that are empty or blank: they say nothing.

    >>> from megalabel.types import TopK
    >>> none_for_blank(TopK(np.array([[3], [5]]), np.array([[0.9], [0.1]], dtype=np.float32)), ["a", " "]).ids.tolist()
    [[3], [-1]]
    """
    blank = np.array([not text.strip() for text in texts], dtype=bool)
    if not blank.any():
        return best
    shown = ~blank[:, None]
    return type(best)(np.where(shown, best.ids, -1), np.where(shown, best.scores, np.float32(-np.inf)))


def as_predictions(best: TopK, labels: Labels) -> list[list[Prediction]]:
    """Return a ranking as uids and texts; rows end where the ranking has no more labels."""
    return [
        [
            Prediction(label, labels.uids[label], labels.texts[label], score, named_parents(labels, label))
            for label, score in zip(ids.tolist(), scores.tolist(), strict=True)
            if label >= 0
        ]
        for ids, scores in zip(best.ids, best.scores, strict=True)
    ]
