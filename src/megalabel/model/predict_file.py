"""Predict the labels of texts block by block, on one or several ranks, so that memory does not grow with them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from megalabel.errors import SettingError
from megalabel.model.cut import make_cut
from megalabel.model.ensemble import Ensemble
from megalabel.model.prediction import PredictedRow, Prediction, named_parents

if TYPE_CHECKING:
    from megalabel.model.model import Model
    from megalabel.ranks import Ranks

__all__ = ["predict_ranks", "predict_stream"]

BLOCK = 1024  # texts in a block
CELLS = 1 << 22  # predictions in a block


def predict_stream(
    model: Model | Ensemble,
    texts: Iterable[tuple[str, str]],
    k: int | None = None,
    *,
    goal: str | None = None,
    precision: float | None = None,
    heads: str = "all",
    min_score: float | None = None,
    head_scores: bool = False,
) -> Iterator[list[PredictedRow]]:
    """Yield the predictions of (uid, text) pairs in blocks; a block is read only when it is needed.

    Args:
        model: a trained model, or an ensemble.
        texts: pairs, as from :func:`~megalabel.model.predict_input.read_texts`.
        k: labels per text; by default those above the threshold of the model, as in :meth:`Model.predict`.
        goal: without k, what the threshold is chosen for.
        precision: without k, a precision that the threshold is chosen for.
        heads: ``all``, or the name of one head.
        min_score: drop labels with a lower score; without k, the threshold itself. Scores of a fused model are
            probabilities.
        head_scores: also return the scores by every head; not for an ensemble.
    """
    cut = make_cut(model, k, goal=goal, precision=precision, min_score=min_score, heads=heads)
    k = min(cut.k, len(model.labels))
    source = iter(texts)
    while block := list(islice(source, max(1, min(BLOCK, CELLS // k)))):
        yield _predict_block(model, block, k, heads, cut.least, head_scores)


def _predict_block(
    model: Model | Ensemble,
    block: Sequence[tuple[str, str]],
    k: int,
    heads: str,
    min_score: float | None,
    head_scores: bool,
) -> list[PredictedRow]:
    texts, labels = [text for _, text in block], model.labels
    if head_scores:
        if isinstance(model, Ensemble):
            raise SettingError("scores of heads are for one run", remedy="predict without a second run")
        top, by_head = model.search_with_head_scores(texts, k, heads=heads)
    else:
        top, by_head = model.search(texts, k, heads=heads), {}
    keep = top.ids >= 0
    if min_score is not None:
        keep &= top.scores >= min_score
    rows = []
    for row, (uid, text) in enumerate(block):
        columns = np.flatnonzero(keep[row])
        ids, scores = top.ids[row, columns].tolist(), top.scores[row, columns].tolist()
        best = [
            Prediction(label, labels.uids[label], labels.texts[label], score, named_parents(labels, label))
            for label, score in zip(ids, scores, strict=True)
        ]
        rows.append(
            PredictedRow(uid, text, best, {name: values[row, columns].tolist() for name, values in by_head.items()})
        )
    return rows


def predict_ranks(
    model: Model | Ensemble, texts: Iterable[tuple[str, str]], ranks: Ranks, k: int | None = None, **options: Any
) -> Iterator[list[PredictedRow]]:
    """Yield the blocks of :func:`predict_stream`, in order, on rank 0; other ranks yield nothing.

    Every rank holds the whole model and reads the same texts. Each predicts one of ``world`` blocks, and
    rank 0 gathers them. All ranks must consume the iterator to its end.
    """
    source = iter(texts)
    while blocks := list(islice(source, BLOCK * ranks.world)):
        block = blocks[BLOCK * ranks.rank : BLOCK * (ranks.rank + 1)]
        rows = [asdict(row) for part in predict_stream(model, block, k, **options) for row in part]
        packed = np.frombuffer(json.dumps(rows).encode(), dtype=np.uint8).copy()
        for part in _gather_bytes(packed, ranks):
            yield [
                PredictedRow(**{**row, "labels": [_prediction(label) for label in row["labels"]]})
                for row in json.loads(part)
            ]


def _prediction(label: dict[str, Any]) -> Prediction:
    """Return a prediction that went through JSON."""
    return Prediction(**{**label, "parents": tuple((uid, name) for uid, name in label["parents"])})


def _gather_bytes(packed: np.ndarray[Any, np.dtype[np.uint8]], ranks: Ranks) -> list[bytes]:
    """Return the bytes of every rank, in order, on rank 0; an empty list on other ranks."""
    sizes = ranks.gather(torch.tensor([len(packed)]), [1] * ranks.world).tolist()
    gathered = ranks.gather(torch.from_numpy(packed), sizes).numpy()
    return [part.tobytes() for part in np.split(gathered, np.cumsum(sizes)[:-1])] if ranks.first else []
