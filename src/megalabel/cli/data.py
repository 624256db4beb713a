"""``megalabel data``: list, describe, build and convert data sets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from megalabel.cli._options import FormatOption, JsonOption, SeedOption, print_json, say, table_command
from megalabel.wording import counted

if TYPE_CHECKING:
    from megalabel.data.dataset import Dataset
    from megalabel.data.formats import Options

__all__ = ["app"]

app = typer.Typer(help="List, describe, build and convert data sets.", no_args_is_help=True)

Source = Annotated[
    str, typer.Argument(metavar="D", help="Data set: a built-in name (pydocs, ...), a folder or a file.")
]


@app.command("list")
def list_command(as_json: JsonOption = False) -> None:
    """List the built-in data sets and the supported formats.

    Example: megalabel data list
    """
    from megalabel.data.builtin import BUILTIN
    from megalabel.data.formats import FORMATS

    if as_json:
        print_json({"builtin": BUILTIN, "formats": FORMATS})
        return
    for title, entries in (("Built-in sets", BUILTIN), ("Formats", FORMATS)):
        typer.echo(title)
        for name, about in entries.items():
            typer.echo(f"  {name:<12} {about}")


@app.command()
@table_command
def info(
    source: Source,
    data_format: FormatOption = None,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
    *,
    table: Options,
) -> None:
    """Describe a data set: sizes, label frequencies, licence, propensity constants, problems.

    Problems are texts that are empty, repeated or both in train and test, rows without a label,
    and labels that look odd: a missing value, or another label in other letters.

    Example: megalabel data info pydocs
    """
    from megalabel.data.card import card
    from megalabel.data.load import load

    summary = card(load(source, format=data_format, options=replace(table, seed=seed), say=say))
    if as_json:
        print_json(summary.to_dict())
    else:
        typer.echo(summary.table())


@app.command()
def build(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A built-in data set, with optional settings: NAME:key=value,...")
    ],
    out: Annotated[Path, typer.Option(help="Folder to write.")],
    to: Annotated[str, typer.Option(metavar="FORMAT", help="Format to write.")] = "folder",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the folder if it exists.")] = False,
) -> None:
    """Write a built-in data set to a folder.

    Example: megalabel data build synthetic:points=100000,labels=20000,seed=1 --out big

    Example: megalabel data build manpages:path=pages --out manpages
    """
    from megalabel.data.builtin import build as build_set
    from megalabel.data.save import save

    _check_target(out, overwrite)
    data = build_set(name, say=say)
    save(data, out, format=to, overwrite=overwrite)
    _report(out, data, to)


@app.command()
@table_command
def convert(
    source: Source,
    target: Annotated[Path, typer.Argument(metavar="DST", help="Folder to write.")],
    data_format: FormatOption = None,
    to: Annotated[str, typer.Option(metavar="FORMAT", help="Format to write.")] = "folder",
    make_filters: Annotated[
        bool,
        typer.Option(
            "--make-filters",
            help="Symmetric sets: add filter pairs for each point with itself and for reciprocal pairs.",
        ),
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace DST if it exists.")] = False,
    seed: SeedOption = 0,
    *,
    table: Options,
) -> None:
    """Convert a data set to another format.

    The format of D is detected and printed; --from overrides it. Of one table, rows without text
    or label are left out, rows with the same text are merged, and a label that a row has twice
    counts once; all of it is counted and said. --strict stops instead.

    Example: megalabel data convert tickets.csv tickets --text-column body --labels-column tags
    """
    from megalabel.data.formats import TABLES, detect, get_format
    from megalabel.data.load import load
    from megalabel.data.make_filters import make_filters as add_filters
    from megalabel.data.problems import find_problems
    from megalabel.data.save import save
    from megalabel.errors import DataError

    get_format(to)
    _check_target(target, overwrite)
    data = load(source, format=data_format, options=replace(table, seed=seed), say=say)
    tables = data_format in TABLES or (
        data_format is None and Path(source).exists() and detect(Path(source))[0] in TABLES
    )
    problems = [] if tables else find_problems(data).lines()  # the reader of a table has said it already
    if problems and table.strict:
        raise DataError(problems[0], path=source, remedy="mend it, or leave out --strict")
    for line in problems:
        say(f"{source}: {line}")
    if make_filters:
        data = add_filters(data)
    save(data, target, format=to, overwrite=overwrite)
    _report(target, data, to)


def _check_target(target: Path, overwrite: bool) -> None:
    """Refuse a target that cannot be written, before the long work."""
    from megalabel.files import check_target

    check_target(target, overwrite=overwrite)


def _report(folder: Path, data: Dataset, data_format: str) -> None:
    sizes = (
        f"{len(data.train):,} train and {counted(len(data.test), 'test point')}, {counted(len(data.labels), 'label')}"
    )
    say(f"{folder}: wrote {sizes}, as {data_format}")
