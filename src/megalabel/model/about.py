"""What a model is and how it was made, for people: about.json and README.md beside its weights."""

from __future__ import annotations

import json
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError

from megalabel._version import __version__
from megalabel.documents import read_json
from megalabel.errors import MegalabelError
from megalabel.files import writing
from megalabel.model.readme import readme

if TYPE_CHECKING:
    from megalabel.data.dataset import Dataset
    from megalabel.model.model import Model

__all__ = ["ABOUT", "add_metrics", "describe", "read_about", "write_about", "write_readme"]

ABOUT = "about.json"
Text = Annotated[str, Field(max_length=2000)]
Count = Annotated[int, Field(ge=0, lt=2**53)]


class _Data(BaseModel):
    model_config = ConfigDict(strict=True)
    name: Text
    about: Text = ""
    licence: Text = ""
    sources: dict[Text, Text] = Field({}, max_length=1000)
    rows: dict[Text, Count] = Field(max_length=10)
    held_out: bool = False  # whether the validation rows were taken from train


class _Measured(BaseModel):
    model_config = ConfigDict(strict=True)
    data: Text
    rows: Count
    metrics: dict[Text, FiniteFloat] = Field(max_length=200)


class _About(BaseModel):
    """What is believed of a file that anyone may have written."""

    model_config = ConfigDict(strict=True)
    megalabel: Text
    data: _Data | None = None
    seconds: Annotated[FiniteFloat, Field(ge=0)] | None = None
    fingerprint: Text = ""
    metrics: dict[Text, _Measured] = Field({}, max_length=10)  # by split


def describe(
    data: Dataset, fingerprint: str, seconds: float | None, validation: Mapping[str, float] | None
) -> dict[str, Any]:
    """Return what is known of a training when it ends.

    Args:
        data: the data set, with its validation rows.
        fingerprint: a hash of it.
        seconds: how long the training took.
        validation: metrics on the validation rows, if there are some.
    """
    name = Path(data.name).name[:200] or "data"  # no folder of the machine it was trained on
    about: dict[str, Any] = {
        "megalabel": __version__,
        "data": {
            "name": name,
            "about": data.about[:2000],
            "licence": data.licence[:2000],
            "sources": dict(data.sources),
            "rows": {split: len(part) for split, part in data.splits.items()},
            "held_out": data.before is not None,
        },
        "seconds": seconds,
        "fingerprint": fingerprint,
        "metrics": {},
    }
    if validation and data.val is not None:
        about["metrics"]["val"] = {"data": name, "rows": len(data.val), "metrics": dict(validation)}
    return about


def add_metrics(folder: str | PathLike[str], place: Path, model: Model, measured: Mapping[str, Any]) -> None:
    """Write metrics into the cards of a run and of the model in it.

    Args:
        folder: the run.
        place: the folder of its model.
        model: that model.
        measured: split, data, rows and metrics.
    """
    values = {name: measured[name] for name in ("data", "rows", "metrics")}
    model.about = {**model.about, "metrics": {**model.about.get("metrics", {}), measured["split"]: values}}
    write_about(place, model)
    write_readme(folder, model, texts=(place / "train").is_dir())


def write_about(place: Path, model: Model) -> None:
    """Write about.json and README.md into the folder of a model; no hash vouches for them, so they may be edited."""
    with writing(place / ABOUT) as out:
        out.write(json.dumps({"megalabel": __version__, **model.about}, indent=2).encode() + b"\n")
    write_readme(place, model, texts=(place / "train").is_dir())


def write_readme(folder: str | PathLike[str], model: Model, name: str = "DIR", *, texts: bool) -> None:
    """Write README.md; ``name`` is what ``Model.load`` takes, and ``texts`` whether the training texts are there."""
    with writing(Path(folder) / "README.md") as out:
        out.write(readme(model, name, texts=texts).encode("utf-8", "replace"))


def read_about(place: Path) -> dict[str, Any]:
    """Return what about.json says; nothing if there is none or it says what no card does, as a model needs none."""
    path = place / ABOUT
    try:
        return _About.model_validate(read_json(path)).model_dump() if path.is_file() else {}
    except (MegalabelError, ValidationError):
        return {}
