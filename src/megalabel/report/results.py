"""The results of a run: its recipe, its log and its evaluation on a data set."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from megalabel.documents import read_json
from megalabel.errors import DataError
from megalabel.files import writing
from megalabel.recipes.load_recipe import load_recipe
from megalabel.training.run_log import read_log

__all__ = ["Curves", "Line", "Results", "model_folder", "read_log_of", "read_results", "save_results"]

FORMAT = 2  # of evaluation.json
FILE = "evaluation.json"
KEYS = ("data", "heads", "weights", "facts", "samples", "calibration", "trade_off")
POINTS = 120  # points of a line; longer ones are averaged
PAUSE = 5.0  # a step that takes so many times the median began with a pause,
SEEN = 0.01  # if that is so much of the whole line

Record = Mapping[str, Any]
Line = list[tuple[float, float]]


@dataclass(frozen=True)
class Results:
    """One run, measured on one split of one data set; all values are plain and fit into JSON."""

    name: str  # unique among the compared runs
    recipe: dict[str, Any]  # resolved
    data: dict[str, Any]  # name, split, fingerprint
    heads: dict[str, dict[str, Any]]  # "all" and each head alone -> its metrics report
    weights: dict[str, float]  # of the heads in "all"
    facts: dict[str, float]  # parameters, model_bytes, texts_per_second
    samples: list[dict[str, Any]]  # text, labels [{text, relevant, score}], missed texts
    calibration: dict[str, Any] | None = None  # of a fused model: error, labels, bins
    trade_off: list[dict[str, Any]] = field(default_factory=list)  # of a fused model: tail and metrics
    log: list[dict[str, Any]] = field(default_factory=list, repr=False)  # the records of metrics.jsonl

    @property
    def best(self) -> dict[str, Any]:
        """The metrics report of all heads together."""
        return self.heads["all"]

    @property
    def fused(self) -> bool:
        """Whether a fusion combines the heads."""
        return bool(self.recipe["predict"]["weights"] in ("fusion", "tree"))

    def to_dict(self) -> dict[str, Any]:
        """Return the content of ``evaluation.json``: all but the recipe and the log, which have their own files."""
        return {"format": FORMAT, **{key: getattr(self, key) for key in KEYS}}


def model_folder(folder: str | PathLike[str]) -> Path:
    """Return where the model of a run is: in ``model/``, or in the folder itself if that is a saved model."""
    for path in (Path(folder) / "model", Path(folder)):
        if (path / "model.json").is_file():
            return path
    raise DataError("there is no model here", path=folder, remedy="give the folder of a finished run or a saved model")


def save_results(folder: str | PathLike[str], results: Results) -> Path:
    """Write ``evaluation.json`` into a run folder, so that the run can be compared without its data."""
    path = Path(folder) / FILE
    document = {**results.to_dict(), "model": _seal(folder)}
    with writing(path) as out:
        out.write(json.dumps(document).encode() + b"\n")
    return path


def read_results(folder: str | PathLike[str], name: str, *, split: str = "test") -> Results:
    """Read what :func:`save_results` wrote, if it describes the model that is in the folder now."""
    model, path = model_folder(folder), Path(folder) / FILE
    if not path.is_file():
        raise DataError("this run has not been evaluated", path=folder, remedy="name the data set with --data")
    try:
        document = read_json(path)
    except DataError as error:
        raise DataError(f"this file cannot be read ({error.what})", path=path, remedy="give --data") from error
    try:
        if document["format"] != FORMAT:
            raise DataError(f"this file has format {document['format']}, not {FORMAT}", path=path, remedy="give --data")
        fields = {key: document[key] for key in KEYS}
        evaluated, seal = fields["data"]["split"], document["model"]
    except (KeyError, TypeError) as error:
        raise DataError(f"this file cannot be read ({error})", path=path, remedy="give --data") from error
    if seal != _seal(folder):
        raise DataError(
            "this evaluation is of another model than the one in this folder", path=path, remedy="give --data"
        )
    if evaluated != split:
        raise DataError(f"this evaluation is of {evaluated} rows, not {split}", path=path, remedy="give --data")
    recipe = load_recipe(model / "recipe.yaml").model_dump(mode="json", by_alias=True)
    return Results(name=name, recipe=recipe, log=read_log_of(folder), **fields)


def read_log_of(folder: str | PathLike[str]) -> list[dict[str, Any]]:
    """Return the records of a run's ``metrics.jsonl``; an empty list for a saved model, which has no log."""
    path = Path(folder) / "metrics.jsonl"
    return read_log(path) if path.is_file() else []


def _seal(folder: str | PathLike[str]) -> str:
    """Return the seal of the model card, which changes with every file of the model."""
    path = model_folder(folder) / "model.json"
    try:
        return str(read_json(path)["seal"])
    except KeyError as error:
        raise DataError(f"this model card has no {error}", path=path) from error


@dataclass(frozen=True)
class Curves:
    """The course of a training, from its log: lines over steps, or over seconds if every record has them.

    A record has ``step`` and ``phase``, and either ``loss`` or ``val`` (metrics in percent). It may also have
    ``seconds`` since its phase began, ``texts`` in the step and ``memory_mb`` of the process.

    >>> curves = Curves([{"step": 1, "phase": "select", "loss": 2.0}, {"step": 2, "phase": "select", "loss": 1.0}])
    >>> curves.loss("select"), curves.timed
    ([(1.0, 2.0), (2.0, 1.0)], False)
    """

    records: Sequence[Record]

    @property
    def timed(self) -> bool:
        """Whether every record has a time."""
        return bool(self.records) and all("seconds" in record for record in self.records)

    @property
    def phases(self) -> list[str]:
        """The phases with a loss, in order: stages, the training that selects, the refit."""
        return list(dict.fromkeys(record["phase"] for record in self.records if "loss" in record))

    def loss(self, phase: str, *, timed: bool = False) -> Line:
        """Return the training loss of a phase; neighbours are averaged, so that there are about 120 points.

        Over seconds, a point without a value (NaN) marks a pause: training waits while negatives are mined, texts are
        clustered or validation rows are searched.
        """
        steps = [
            (_position(record, timed), float(record["loss"]))
            for record in self.records
            if record["phase"] == phase and record.get("loss") is not None
        ]
        size = -(-len(steps) // POINTS) or 1
        line: Line = []
        for part in _between_pauses(steps) if timed else [steps]:
            blocks = [part[start : start + size] for start in range(0, len(part), size)]
            line += [(part[0][0], math.nan)] if line else []
            line += [(block[-1][0], sum(value for _, value in block) / len(block)) for block in blocks]
        return line

    def validation(self, metric: str, *, timed: bool = False) -> Line:
        """Return a metric on validation rows during the training that selects."""
        return [(_position(record, timed), float(record["val"][metric])) for record in self._validated(metric)]

    def best_epoch(self, metric: str) -> int | None:
        """Return the epoch with the best validation metric, the first if several are equal."""
        records = self._validated(metric)
        return int(max(records, key=lambda record: record["val"][metric])["epoch"]) if records else None

    def totals(self) -> dict[str, float]:
        """Return steps and epochs of the last phase; if logged, seconds, texts per second and memory of all phases."""
        losses = [record for record in self.records if "loss" in record]
        if not losses:
            return {}
        last = [record for record in losses if record["phase"] == losses[-1]["phase"]]
        totals: dict[str, float] = {"steps": last[-1]["step"], "epochs": last[-1]["epoch"] + 1}
        if self.timed:
            ends = {record["phase"]: record["seconds"] for record in self.records}
            totals["seconds"] = sum(ends.values())
            if all("texts" in record for record in losses):
                totals["texts_per_second"] = sum(record["texts"] for record in losses) / max(totals["seconds"], 1e-9)
        memory = [record["memory_mb"] for record in self.records if record.get("memory_mb") is not None]
        return totals | ({"memory_mb": max(memory)} if memory else {})

    def _validated(self, metric: str) -> list[Record]:
        select = [record for record in self.records if record["phase"] == "select" and "val" in record]
        return [record for record in select if record["val"].get(metric) is not None]


def _between_pauses(steps: Line) -> list[Line]:
    """Cut a line over seconds before every step that took far longer than others, and long enough to be seen."""
    if len(steps) < 3:
        return [steps]
    seconds = np.array([second for second, _ in steps])
    taken = np.diff(seconds)
    long = np.maximum(PAUSE * np.median(taken), (seconds[-1] - seconds[0]) * SEEN)
    ends = [0, *(np.flatnonzero(taken > long) + 1).tolist(), len(steps)]
    return [steps[start:end] for start, end in pairwise(ends)]


def _position(record: Record, timed: bool) -> float:
    """Return where a record lies on the x axis."""
    return float(record["seconds" if timed else "step"])
