"""The labels predicted for a text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

__all__ = ["PredictedRow", "Prediction"]


@dataclass(frozen=True, slots=True)
class Prediction:
    """One label predicted for one text."""

    id: int
    uid: str
    text: str
    score: float


@dataclass(frozen=True, slots=True)
class PredictedRow:
    """The labels predicted for one text, best first; ``heads`` holds their scores by each head, if requested."""

    uid: str
    text: str
    labels: Sequence[Prediction]
    heads: dict[str, list[float]] = field(default_factory=dict)
