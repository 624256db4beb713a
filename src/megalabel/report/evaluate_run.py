"""Measure a run on a data set: all heads together and each alone, with samples and speed."""

from __future__ import annotations

import math
import time
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from megalabel.errors import DataError
from megalabel.report.measure_fusion import measure_fusion
from megalabel.report.results import Results, model_folder, read_log_of
from megalabel.trainer import fingerprint

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from megalabel.data.dataset import Dataset, Split
    from megalabel.model import Model
    from megalabel.types import TopK

__all__ = ["evaluate_run"]

SAMPLES = 50  # texts kept with their best labels, to choose examples from
BEST = 5  # labels kept of each
LONGEST = 300  # characters kept of a text


def evaluate_run(
    folder: str | PathLike[str], model: Model, data: Dataset, *, name: str, split: str = "test"
) -> Results:
    """Evaluate the model of a run folder on a split; the same rows are kept as samples whatever the model.

    Raises:
        DataError: the data has no such rows, or other labels than the model; it names the run.
    """
    heads = ["all", *model.heads] if len(model.heads) > 1 else ["all"]
    try:
        reports = {head: model.evaluate(data, split, heads=head).to_dict() for head in heads}
    except DataError as error:
        error.path = folder if error.path is None else error.path
        raise
    part = data.split(split)
    rows = _spread(part)
    chosen = part.rows(rows)
    begin = time.perf_counter()
    found = model.search(chosen.texts, min(BEST, len(data.labels)), exclude=chosen.excluded())
    seconds = time.perf_counter() - begin
    place = model_folder(folder)
    calibration, trade_off = measure_fusion(model, data, split)
    return Results(
        name=name,
        recipe=model.recipe.model_dump(mode="json"),
        data={"name": data.name, "split": split, "fingerprint": fingerprint(data)},
        heads=reports,
        weights=model.weights if model.fusion is None else model.fusion.shares(),
        facts={
            "parameters": _numbers(place),
            "model_bytes": sum(path.stat().st_size for path in place.rglob("*") if path.is_file()),
            "texts_per_second": len(rows) / max(seconds, 1e-9),
        },
        samples=_samples(chosen, data, found),
        calibration=calibration,
        trade_off=trade_off,
        log=read_log_of(folder),
    )


def _numbers(place: Path) -> int:
    """Return how many floating-point numbers a saved model holds; zeros of sparse weights are not stored."""
    from safetensors import safe_open

    total = 0
    for path in sorted(place.rglob("*.safetensors")):
        with safe_open(path, framework="np") as tensors:
            parts = (tensors.get_slice(name) for name in tensors.keys())  # noqa: SIM118
            total += sum(math.prod(part.get_shape()) for part in parts if "F" in part.get_dtype())
    return total


def _spread(part: Split) -> NDArray[np.int64]:
    """Return rows with labels, spread evenly over the split."""
    rows = np.flatnonzero(np.diff(part.targets.indptr))
    return rows[np.unique(np.linspace(0, len(rows) - 1, SAMPLES).astype(np.int64))]


def _samples(part: Split, data: Dataset, found: TopK) -> list[dict[str, Any]]:
    samples = []
    for row, (ids, scores) in enumerate(zip(found.ids.tolist(), found.scores.tolist(), strict=True)):
        start, stop = part.targets.indptr[row : row + 2]
        truth = part.targets.indices[start:stop].tolist()
        labels = [
            {"text": _short(data.labels.texts[label]), "relevant": label in truth, "score": score}
            for label, score in zip(ids, scores, strict=True)
            if label >= 0
        ]
        missed = [_short(data.labels.texts[label]) for label in truth if label not in ids]
        samples.append({"text": _short(part.texts[row]), "labels": labels, "missed": missed})
    return samples


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1].rstrip()}…"
