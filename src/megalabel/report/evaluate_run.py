"""Measure a run on a data set: all heads together and each alone, sample predictions, speed, calibration."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from megalabel.errors import DataError
from megalabel.fusion.calibrate import expected_calibration_error
from megalabel.metrics.propensity import inverse_propensity
from megalabel.model import ROWS
from megalabel.report.results import Results, model_folder, read_log_of
from megalabel.training.run_folder import fingerprint
from megalabel.types import TopK

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from megalabel.data.dataset import Dataset, Labels, Split
    from megalabel.model import Matched, Model

__all__ = ["evaluate_run", "measure_fusion"]

SAMPLES = 50  # texts kept with their best labels, to choose examples from
BEST = 5  # labels kept of each
LONGEST = 300  # characters kept of a text

# Of a fused model:
TAILS = (0.0, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0)
TAIL_METRICS = ("P@1", "P@5", "PSP@1", "PSP@5")
BINS = 10  # of probability


def evaluate_run(
    folder: str | PathLike[str],
    model: Model,
    data: Dataset,
    *,
    name: str,
    split: str = "test",
    say: Callable[[str], None] = lambda line: None,
) -> Results:
    """Evaluate the model of a run folder on a split; the sample rows are the same for every model.

    ``say`` receives a line about labels that the model does not know, or no longer.

    Raises:
        DataError: the data has no such split, or no label of the model; the message names the run.
    """
    heads = ["all", *model.heads] if len(model.heads) > 1 else ["all"]
    try:
        matched = model.match(data, split)
        reports = {head: model.evaluate(matched, heads=head).to_dict() for head in heads}
    except DataError as error:
        error.path = folder if error.path is None else error.path
        raise
    for line in matched.notes:
        say(line)
    model = model.hiding(matched.hidden)
    rows = _spread(matched.split)
    chosen = matched.split.rows(rows)
    begin = time.perf_counter()
    best = model.search(chosen.texts, min(BEST, len(model.labels)), exclude=matched.excluded[rows])
    seconds = time.perf_counter() - begin
    saved = model_folder(folder)
    calibration, trade_off = measure_fusion(model, matched)
    return Results(
        name=name,
        recipe=model.recipe.model_dump(mode="json", by_alias=True),
        data={"name": data.name, "split": split, "fingerprint": fingerprint(data)},
        heads=reports,
        weights=model.head_weights(),
        facts={
            "parameters": _parameters(saved),
            "model_bytes": sum(path.stat().st_size for path in saved.rglob("*") if path.is_file()),
            "texts_per_second": len(rows) / max(seconds, 1e-9),
        },
        samples=_samples(chosen, matched.labels, best),
        calibration=calibration,
        trade_off=trade_off,
        log=read_log_of(folder),
    )


def _parameters(folder: Path) -> int:
    """Count the floating-point numbers of a saved model; zeros of sparse weights are not stored."""
    from safetensors import safe_open

    total = 0
    for path in sorted(folder.rglob("*.safetensors")):
        with safe_open(path, framework="np") as tensors:
            parts = (tensors.get_slice(name) for name in tensors.keys())  # noqa: SIM118
            total += sum(math.prod(part.get_shape()) for part in parts if "F" in part.get_dtype())
    return total


def _spread(part: Split) -> NDArray[np.int64]:
    """Return rows with labels, spread evenly over the split."""
    rows = np.flatnonzero(np.diff(part.targets.indptr))
    return rows[np.unique(np.linspace(0, len(rows) - 1, SAMPLES).astype(np.int64))]


def _samples(part: Split, names: Labels, best: TopK) -> list[dict[str, Any]]:
    samples = []
    for row, (ids, scores) in enumerate(zip(best.ids.tolist(), best.scores.tolist(), strict=True)):
        start, stop = part.targets.indptr[row : row + 2]
        truth = part.targets.indices[start:stop].tolist()
        labels = [
            {"text": _short(names.texts[label]), "relevant": label in truth, "score": score}
            for label, score in zip(ids, scores, strict=True)
            if label >= 0
        ]
        missed = [_short(names.texts[label]) for label in truth if label not in ids]
        samples.append({"text": _short(part.texts[row]), "labels": labels, "missed": missed})
    return samples


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1].rstrip()}…"


def measure_fusion(model: Model, matched: Matched) -> tuple[dict[str, Any] | None, list[dict[str, Any]]]:
    """Return calibration and trade-off of a fused model on rows; ``(None, [])`` for a model without fusion.

    Calibration is the expected calibration error over the five most probable labels of each text, in points, and for
    each of ten bins of probability the number of labels, their mean probability and the share that is correct. The
    trade-off lists the metrics at several values of ``tail``. The heads score the rows once for all of it. A fusion
    that is not calibrated has only the trade-off.
    """
    if model.fusion is None:
        return None, []
    part = matched.split
    ranked = _rank(model, matched)
    first = ranked[0.0]
    valid = first.ids >= 0
    correct = np.zeros(first.ids.shape)
    rows = np.broadcast_to(np.arange(len(part))[:, None], first.ids.shape)
    correct[valid] = np.asarray(part.targets[rows[valid], first.ids[valid]]).ravel() > 0
    trade_off = []
    for tail, best in ranked.items():
        report = matched.measure(best.ids, ks=(1, BEST))
        trade_off.append(
            {"tail": tail, **{name: report.metrics[name] for name in TAIL_METRICS if name in report.metrics}}
        )
    if model.fusion.calibration is None:
        return None, trade_off
    return _calibration(np.clip(first.scores[valid].astype(np.float64), 0, 1), correct[valid]), trade_off


def _rank(model: Model, matched: Matched) -> dict[float, TopK]:
    """Return the five best labels of every text for each value of ``tail``."""
    assert model.fusion is not None
    rare = inverse_propensity(model.stats.counts, model.stats.points, *model.stats.propensity)
    blocks: dict[float, list[TopK]] = {tail: [] for tail in TAILS}
    part, exclude = matched.split, matched.excluded
    for start in range(0, len(part), ROWS):
        rows = slice(start, min(start + ROWS, len(part)))
        ids, scores = model.candidates(part.texts[rows], exclude[rows])
        for tail, ranked in blocks.items():
            ranked.append(model.fusion.rank(scores, ids, model.fitted.counts, BEST, inverse_propensity=rare, tail=tail))
    return {
        tail: TopK(np.concatenate([best.ids for best in ranked]), np.concatenate([best.scores for best in ranked]))
        for tail, ranked in blocks.items()
    }


def _calibration(probability: NDArray[np.float64], correct: NDArray[np.float64]) -> dict[str, Any]:
    """Return the error and the bins, in percent."""
    bin_of = np.minimum((probability * BINS).astype(np.int64), BINS - 1)
    counts = np.bincount(bin_of, minlength=BINS)
    shares = {
        name: 100 * np.bincount(bin_of, value, minlength=BINS) / np.maximum(counts, 1)
        for name, value in (("predicted", probability), ("observed", correct))
    }
    bins = [
        {"low": 100 * number // BINS, "high": 100 * (number + 1) // BINS, "labels": int(counts[number])}
        | {name: float(value[number]) for name, value in shares.items()}
        for number in range(BINS)
    ]
    error = 100 * expected_calibration_error(probability, correct, bins=BINS)
    return {"error": error, "labels": len(probability), "bins": bins}
