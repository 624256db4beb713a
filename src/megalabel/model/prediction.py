"""One label for one text."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Prediction"]


@dataclass(frozen=True, slots=True)
class Prediction:
    """One label for one text."""

    id: int
    uid: str
    text: str
    score: float
