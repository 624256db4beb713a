"""Predictions for the columns of a table, as bulk engines want them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from megalabel.model import Model

__all__ = ["Columns", "predict_columns"]


class Columns(NamedTuple):
    """What is predicted for each text, best first."""

    labels: list[list[str]]  # uids
    label_texts: list[list[str]]
    scores: list[list[float]]


def predict_columns(model: Model, texts: Sequence[Any], k: int | None, options: Mapping[str, Any]) -> Columns:
    """Return what ``model.predict`` does, as columns; a missing text (None, NaN) has no labels, like an empty one."""
    rows = model.predict(["" if text is None or text != text else str(text) for text in texts], k, **options)
    return Columns(
        [[label.uid for label in row] for row in rows],
        [[label.text for label in row] for row in rows],
        [[label.score for label in row] for row in rows],
    )
