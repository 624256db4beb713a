"""Options and small helpers that several commands share."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from megalabel.data.dataset import Dataset
    from megalabel.model import Ensemble, Model

__all__ = [
    "DataOption",
    "DeviceOption",
    "FormatOption",
    "HeadsOption",
    "JsonOption",
    "OwnDeviceOption",
    "RuleOption",
    "SeedOption",
    "TailOption",
    "WithOption",
    "load_model",
    "print_json",
    "report_run",
    "say",
]

DataOption = Annotated[
    str, typer.Option("--data", "-d", metavar="D", help="Data set: a built-in name (pydocs, ...), a folder or a file.")
]
DeviceOption = Annotated[
    str, typer.Option("--device", metavar="DEVICE", help="auto (cuda if available), cpu, cuda, cuda:1 or mps.")
]
FormatOption = Annotated[
    str | None, typer.Option("--from", metavar="FORMAT", help="Format of the data; detected by default.")
]
HeadsOption = Annotated[str, typer.Option(help="Heads to use: all, or the name of one (dual, classifier, linear).")]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON document on standard output and nothing else.")
]
OwnDeviceOption = Annotated[
    str | None,
    typer.Option("--device", metavar="DEVICE", help="auto, cpu, cuda, cuda:1 or mps; overrides the recipe."),
]
SeedOption = Annotated[int, typer.Option("--seed", min=0, max=2**63 - 1, help="Random seed.")]
WithOption = Annotated[
    list[Path] | None,
    typer.Option("--with", metavar="RUN", help="A further run to rank with, as an ensemble; repeat for several."),
]
RuleOption = Annotated[
    str, typer.Option("--by", metavar="RULE", help="How --with averages: rank, or score (for one recipe's runs).")
]
TailOption = Annotated[
    float | None,
    typer.Option(
        help="Fused models: rank by p x (inverse propensity)^TAIL, 0 to 1; higher values promote rare labels."
    ),
]


def say(line: str) -> None:
    """Print a message on standard error; standard output is for results."""
    typer.echo(line, err=True)


def print_json(document: dict[str, Any] | list[Any]) -> None:
    """Print one JSON document on standard output."""
    json.dump(document, sys.stdout, indent=2, ensure_ascii=False, default=_plain)
    sys.stdout.write("\n")


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value.tolist()


def load_model(runs: Sequence[Path], by: str, tail: float | None, device: str, exact: bool = False) -> Model | Ensemble:
    """Return the model of a run, or the ensemble of several."""
    from megalabel.errors import SettingError, nearest
    from megalabel.model import Ensemble, Model
    from megalabel.model.ensemble import RULES

    if by not in RULES:
        raise SettingError(f"unknown rule --by {by!r}", remedy=nearest(by, RULES))
    if len(runs) == 1:
        return Model.load(runs[0], tail=tail, device=device, exact=exact)
    return Ensemble.load(runs, by, tail=tail, device=device, exact=exact)


def report_run(out: Path, model: Model, data: Dataset) -> None:
    """Write the report of a finished run and print its path; a failed report is one line and keeps the run."""
    from megalabel.errors import MegalabelError
    from megalabel.report import write_report

    try:
        say(f"report: {write_report(out, model, data)}")
    except MegalabelError as error:
        say(f"the run is complete, but its report could not be written: {error}")
