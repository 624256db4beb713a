"""Options and small helpers that several commands share."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

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
    "say",
]

DataOption = Annotated[
    str, typer.Option("--data", "-d", metavar="D", help="A built-in name (pydocs, ...), a folder or a file.")
]
DeviceOption = Annotated[
    str, typer.Option("--device", metavar="DEVICE", help="auto (cuda if there is one), cpu, cuda, cuda:1, mps.")
]
FormatOption = Annotated[
    str | None, typer.Option("--from", metavar="FORMAT", help="Read the data in this format instead of guessing.")
]
HeadsOption = Annotated[str, typer.Option(help="Of a model: all, or one head by name (dual, classifier, linear).")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document on standard output, nothing else.")]
OwnDeviceOption = Annotated[
    str | None,
    typer.Option("--device", metavar="DEVICE", help="In place of the recipe's: auto, cpu, cuda, cuda:1, mps."),
]
SeedOption = Annotated[int, typer.Option("--seed", help="Seed of everything random.")]

TailOption = Annotated[
    float | None,
    typer.Option(help="Of a fused model: rank by p x (inverse propensity)^TAIL; above 0, rare labels come forward."),
]


def say(line: str) -> None:
    """Tell the user something on standard error, out of the way of results."""
    typer.echo(line, err=True)


def print_json(document: dict[str, Any] | list[Any]) -> None:
    """Print one JSON document on standard output."""
    json.dump(document, sys.stdout, indent=2, ensure_ascii=False, default=_plain)
    sys.stdout.write("\n")


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value.tolist()
