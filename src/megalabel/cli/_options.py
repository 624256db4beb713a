"""Options and small helpers that several commands share."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

if TYPE_CHECKING:
    from megalabel.data.dataset import Dataset
    from megalabel.data.formats import Options
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
    "table_command",
    "table_options",
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
    str | None,
    typer.Option("--by", metavar="RULE", help="How --with averages: rank (default), or score (one recipe's runs)."),
]
TailOption = Annotated[
    float | None,
    typer.Option(
        help="Fused models: rank by p x (inverse propensity)^TAIL, 0 to 1; higher values promote rare labels."
    ),
]

_TABLES = "Own tables"  # the group of these options in --help
_TABLE_OPTIONS: dict[str, Any] = {
    "text_column": Annotated[
        str | None, typer.Option(metavar="NAME", help="The column with the text.", rich_help_panel=_TABLES)
    ],
    "labels_column": Annotated[
        str | None, typer.Option(metavar="NAME", help="The column with the labels.", rich_help_panel=_TABLES)
    ],
    "uid_column": Annotated[
        str | None, typer.Option(metavar="NAME", help="The column with the uid of a row.", rich_help_panel=_TABLES)
    ],
    "separator": Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="What separates the labels of a cell; '': nothing.", rich_help_panel=_TABLES),
    ],
    "label_file": Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Uid and text of each label: a table, SKOS (.ttl, .rdf, .nt) or a vocabulary of Annif.",
            rich_help_panel=_TABLES,
        ),
    ],
    "language": Annotated[
        str | None,
        typer.Option(metavar="CODE", help="Vocabularies: the language of the labels.", rich_help_panel=_TABLES),
    ],
    "label_text": Annotated[
        str | None,
        typer.Option(
            metavar="PARTS",
            help="Vocabularies: what the text of a label is, label+alt by default; path adds the broader labels.",
            rich_help_panel=_TABLES,
        ),
    ],
    "strict": Annotated[
        bool,
        typer.Option("--strict", help="Stop at the first odd row instead of reporting it.", rich_help_panel=_TABLES),
    ],
    "fields": Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Repository JSON: title, or title+content.", rich_help_panel=_TABLES),
    ],
    "test_share": Annotated[
        float | None,
        typer.Option(
            metavar="X",
            min=0.0,
            max=0.9,
            help="Share of the rows to hold out as test if the data has no test rows.",
            rich_help_panel=_TABLES,
        ),
    ],
}
_DEFAULTS = {"strict": False}


def table_command(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options about tables; it receives them as one argument, ``table``, with the same names."""
    types = get_type_hints(command, localns={"Options": object}, include_extras=True)
    own = [
        parameter.replace(annotation=types[name])
        for name, parameter in inspect.signature(command).parameters.items()
        if name != "table"
    ]
    more = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=_DEFAULTS.get(name), annotation=kind)
        for name, kind in _TABLE_OPTIONS.items()
    ]

    @wraps(command)
    def wrapped(*arguments: Any, **values: Any) -> None:
        from megalabel.data.formats import Options

        table = Options(**{name: values.pop(name, _DEFAULTS.get(name)) for name in _TABLE_OPTIONS})
        command(*arguments, **values, table=table)

    parameters = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own] + more
    wrapped.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    wrapped.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    del wrapped.__wrapped__
    return wrapped


def table_options(table: Options) -> list[str]:
    """Return the options as they are written on the command line."""
    given = {name: getattr(table, name) for name in _TABLE_OPTIONS}
    strict = ["--strict"] if given.pop("strict") else []
    pairs = [(f"--{name.replace('_', '-')}", str(value)) for name, value in given.items() if value is not None]
    return [*(part for pair in pairs for part in pair), *strict]


def say(line: str) -> None:
    """Print a message on standard error; standard output is for results."""
    typer.echo(line, err=True)


def print_json(document: dict[str, Any] | list[Any]) -> None:
    """Print one JSON document on standard output."""
    json.dump(document, sys.stdout, indent=2, ensure_ascii=False, default=_plain)
    sys.stdout.write("\n")


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value.tolist()


def load_model(
    runs: Sequence[Path], by: str | None, tail: float | None, device: str, exact: bool = False
) -> Model | Ensemble:
    """Return the model of a run, or the ensemble of several."""
    from megalabel.errors import SettingError, nearest
    from megalabel.model import Ensemble, Model
    from megalabel.model.ensemble import RULES

    if by is not None and by not in RULES:
        raise SettingError(f"unknown rule --by {by!r}", remedy=nearest(by, RULES))
    if len(runs) == 1:
        if by is not None:
            raise SettingError("--by has no effect: there is one run", remedy="name another one with --with")
        return Model.load(runs[0], tail=tail, device=device, exact=exact)
    return Ensemble.load(runs, by or RULES[0], tail=tail, device=device, exact=exact)


def report_run(out: Path, model: Model, data: Dataset) -> None:
    """Write the report of a finished run, print its metrics and path; a failed report is one line and keeps the run."""
    from megalabel.errors import MegalabelError
    from megalabel.report import write_report

    try:
        say(f"report: {write_report(out, model, data, say=say)}")
    except MegalabelError as error:
        say(f"the run is complete, but its report could not be written: {error}")
