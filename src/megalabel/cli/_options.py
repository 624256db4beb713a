"""Options and small helpers that several commands share."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from megalabel.data.dataset import Dataset
    from megalabel.model import Model

__all__ = [
    "DataOption",
    "DeviceOption",
    "FormatOption",
    "HeadsOption",
    "JsonOption",
    "OwnDeviceOption",
    "SeedOption",
    "TailOption",
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


def report_run(out: Path, model: Model, data: Dataset) -> None:
    """Write the report of a finished run and print its path; a failed report is one line and keeps the run."""
    from megalabel.errors import MegalabelError
    from megalabel.report import write_report

    try:
        say(f"report: {write_report(out, model, data)}")
    except MegalabelError as error:
        say(f"the run is complete, but its report could not be written: {error}")
