"""Predictions as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from megalabel.model.snapshot import Snapshot
from megalabel.serve.batcher import Part
from megalabel.serve.json_bytes import json_bytes

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["label_row", "predicted_rows", "seen_row"]


def predicted_rows(now: Snapshot, parts: Sequence[Part]) -> list[list[bytes]]:
    """Answer parts of one group by one call of the model, with the labels of one moment: JSON for each text."""
    job = parts[0].job
    texts = [text for part in parts for text in part.texts]
    found = now.search(texts, max(part.job.k for part in parts), heads=job.heads, tail=job.tail)
    heads = now.head_scores(texts, found.ids) if job.details else {}
    rows, start = [], 0
    for part in parts:
        some = slice(start, start + part.stop - part.start), slice(part.job.k)
        start = some[0].stop
        more = _details(now, found.ids[some], {name: each[some] for name, each in heads.items()})
        rows.append(_written(now, found.ids[some], found.scores[some], more, part.job.min_score))
    return rows


def label_row(now: Snapshot, label: int) -> dict[str, Any]:
    """Return id, uid and text of a label."""
    labels = now.state.labels
    return {"id": label, "uid": labels.uids[label], "text": labels.texts[label]}


def seen_row(points: int) -> dict[str, Any]:
    """Return how often a label was seen."""
    return {"points": points, "frequency": Snapshot.frequency(points)}


def _details(now: Snapshot, ids: NDArray[Any], heads: dict[str, NDArray[Any]]) -> list[list[dict[str, Any]]] | None:
    """Return what is said of each label beyond its score; None where nothing is asked."""
    if not heads:
        return None
    points = now.points(ids).tolist()
    scores = {name: each.tolist() for name, each in heads.items()}
    return [
        [
            seen_row(n) | {"heads": {name: each[row][place] for name, each in scores.items()}}
            for place, n in enumerate(some)
        ]
        for row, some in enumerate(points)
    ]


def _written(
    now: Snapshot, ids: NDArray[Any], scores: NDArray[Any], more: list[list[dict[str, Any]]] | None, least: float | None
) -> list[bytes]:
    out = []
    for row, (some, values) in enumerate(zip(ids.tolist(), scores.tolist(), strict=True)):
        found = []
        for place, (label, score) in enumerate(zip(some, values, strict=True)):
            if label < 0 or (least is not None and score < least):
                continue
            one = label_row(now, label)
            one["score"] = score
            if more is not None:
                one |= more[row][place]
            found.append(one)
        out.append(json_bytes(found))
    return out
