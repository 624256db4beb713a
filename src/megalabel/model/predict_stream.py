"""Predict a file of any size, in and out as a stream."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from megalabel.errors import SettingError
from megalabel.model.prediction import Prediction
from megalabel.model.write_found import Found

if TYPE_CHECKING:
    from megalabel.model.model import Model

__all__ = ["predict_stream"]

BLOCK = 1024  # texts at a time
CELLS = 1 << 22  # predictions held at a time


def predict_stream(
    model: Model,
    texts: Iterable[tuple[str, str]],
    k: int = 5,
    *,
    heads: str = "all",
    min_score: float | None = None,
    head_scores: bool = False,
) -> Iterator[list[Found]]:
    """Yield the predictions of (uid, text) pairs, some rows at a time; memory does not grow with their number.

    Args:
        model: a trained model.
        texts: pairs, such as :func:`~megalabel.model.read_texts.read_texts` gives.
        k: labels for each text.
        heads: ``all``, or one head by name.
        min_score: leave out labels with a lower score; where a model is fused, that is a probability.
        head_scores: give the score by every head as well.
    """
    if k < 1:
        raise SettingError(f"k must be at least 1, not {k}")
    k = min(k, len(model.labels))
    source = iter(texts)
    while some := list(islice(source, max(1, min(BLOCK, CELLS // k)))):
        yield _block(model, some, k, heads, min_score, head_scores)


def _block(
    model: Model, some: Sequence[tuple[str, str]], k: int, heads: str, min_score: float | None, head_scores: bool
) -> list[Found]:
    texts, labels = [text for _, text in some], model.labels
    found = model.search(texts, k, heads=heads)
    by_head = {name: answer.of(found.ids) for name, answer in model.answers(texts).items()} if head_scores else {}
    keep = found.ids >= 0
    if min_score is not None:
        keep &= found.scores >= min_score
    rows = []
    for row, (uid, text) in enumerate(some):
        places = np.flatnonzero(keep[row])
        ids, scores = found.ids[row, places].tolist(), found.scores[row, places].tolist()
        best = [
            Prediction(one, labels.uids[one], labels.texts[one], score) for one, score in zip(ids, scores, strict=True)
        ]
        rows.append(Found(uid, text, best, {name: values[row, places].tolist() for name, values in by_head.items()}))
    return rows
