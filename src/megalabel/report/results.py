"""What is known of a run: its recipe, its log and how it did on a data set."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

from megalabel.errors import DataError
from megalabel.files import writing
from megalabel.recipes.load_recipe import load_recipe
from megalabel.training.run_log import read_log

__all__ = ["Results", "model_folder", "read_log_of", "read_results", "save_results"]

FORMAT = 2  # of evaluation.json
FILE = "evaluation.json"
KEYS = ("data", "heads", "weights", "facts", "samples", "calibration", "trade_off")


@dataclass(frozen=True)
class Results:
    """One run, measured on one split of one data set; everything in it is plain and fits into JSON."""

    name: str  # what the run is called beside others
    recipe: dict[str, Any]  # resolved
    data: dict[str, Any]  # name, split, fingerprint
    heads: dict[str, dict[str, Any]]  # "all" and each head alone -> the document of its report
    weights: dict[str, float]  # of the heads in "all"
    facts: dict[str, float]  # parameters, model_bytes, texts_per_second
    samples: list[dict[str, Any]]  # text, labels [{text, relevant, score}], missed texts
    calibration: dict[str, Any] | None = None  # of a fused model: error, labels, bins
    trade_off: list[dict[str, Any]] = field(default_factory=list)  # of a fused model: tail and metrics
    log: list[dict[str, Any]] = field(default_factory=list, repr=False)  # the records of metrics.jsonl

    @property
    def best(self) -> dict[str, Any]:
        """The report of all heads together."""
        return self.heads["all"]

    @property
    def fused(self) -> bool:
        """Whether a fusion puts the heads together."""
        return bool(self.recipe["predict"]["weights"] == "fusion")

    def to_dict(self) -> dict[str, Any]:
        """Return what ``evaluation.json`` holds: all but the recipe and the log, which have files of their own."""
        return {
            "format": FORMAT,
            "data": self.data,
            "heads": self.heads,
            "weights": self.weights,
            "facts": self.facts,
            "samples": self.samples,
            "calibration": self.calibration,
            "trade_off": self.trade_off,
        }


def model_folder(folder: str | PathLike[str]) -> Path:
    """Return where the model of a run is: in ``model/``, or in the folder itself if that is a saved model."""
    place = Path(folder)
    for found in (place / "model", place):
        if (found / "model.json").is_file():
            return found
    raise DataError("there is no model here", path=folder, remedy="give the folder of a finished run or a saved model")


def save_results(folder: str | PathLike[str], results: Results) -> Path:
    """Write ``evaluation.json`` into a run folder, so that the run can be compared without its data."""
    path = Path(folder) / FILE
    document = {**results.to_dict(), "model": _seal(folder)}
    with writing(path) as out:
        out.write(json.dumps(document).encode() + b"\n")
    return path


def read_results(folder: str | PathLike[str], name: str, *, split: str = "test") -> Results:
    """Read what :func:`save_results` wrote, if it is about the model that is there now."""
    place, path = model_folder(folder), Path(folder) / FILE
    if not path.is_file():
        raise DataError("this run has not been evaluated", path=folder, remedy="name the data set with --data")
    try:
        document = json.loads(path.read_bytes())
        if document["format"] != FORMAT:
            raise DataError(f"this file has format {document['format']}, not {FORMAT}", path=path, remedy="give --data")
        fields = {key: document[key] for key in KEYS}
        found, model = fields["data"]["split"], document["model"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"this file cannot be read ({error})", path=path, remedy="give --data") from error
    if model != _seal(folder):
        raise DataError("this evaluation is of another model than the one here", path=path, remedy="give --data")
    if found != split:
        raise DataError(f"this evaluation is of {found} rows, not {split}", path=path, remedy="give --data")
    recipe = load_recipe(place / "recipe.yaml").model_dump(mode="json")
    return Results(name=name, recipe=recipe, log=read_log_of(folder), **fields)


def read_log_of(folder: str | PathLike[str]) -> list[dict[str, Any]]:
    """Return the records of a run's ``metrics.jsonl``; none for a saved model, which has no log."""
    path = Path(folder) / "metrics.jsonl"
    return read_log(path) if path.is_file() else []


def _seal(folder: str | PathLike[str]) -> str:
    """Return the seal of the model card, which changes with every file of the model."""
    path = model_folder(folder) / "model.json"
    try:
        return str(json.loads(path.read_bytes())["seal"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"this model card cannot be read ({error})", path=path) from error
