"""``megalabel compare``: compare runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from megalabel.cli._options import FormatOption, JsonOption, print_json, say, table_command
from megalabel.wording import counted

if TYPE_CHECKING:
    from megalabel.data.dataset import Dataset
    from megalabel.data.formats import Options
    from megalabel.report.results import Results

__all__ = ["compare"]


@table_command
def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders or saved models, one or more.")],
    data: Annotated[
        str | None,
        typer.Option(
            "--data",
            "-d",
            metavar="D",
            help="Measure on this set: a built-in name, a folder or a file. Default: the evaluation that train saved.",
        ),
    ] = None,
    split: Annotated[str, typer.Option(help="Which rows: test, val or train.")] = "test",
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a page with charts and sample predictions.")
    ] = None,
    png: Annotated[
        bool, typer.Option("--png", help="With --html: also write the charts as PNG files, into plots/ beside it.")
    ] = False,
    data_format: FormatOption = None,
    as_json: JsonOption = False,
    *,
    table: Options,
) -> None:
    """Compare runs: metrics of all heads together and of each alone, and what differs in the recipes.

    All runs are measured on the same rows; labels are matched by uid, and all rows of one table
    are test rows, as in evaluate. --html writes a self-contained page: metrics, P against PSP,
    label frequency, learning curves, size and speed, recipe differences, correct and wrong
    predictions.

    Example: megalabel compare runs/first runs/second --html compare.html

    Example: megalabel compare runs/first runs/second --data pydocs --split val
    """
    from megalabel.errors import SettingError, WriteError
    from megalabel.report.compare_runs import compare_runs
    from megalabel.report.write_report import write_page

    if png and html is None:
        raise SettingError("--png needs --html FILE", remedy="PNG files are written beside the page")
    if html is not None and html.is_dir():
        raise WriteError(
            "this is a folder, --html expects a file", path=html, remedy=f"for example {html}/compare.html"
        )
    dataset = None if data is None else _load(data, data_format, runs[0], table)
    results = compare_runs(runs, dataset, split=split, say=say)
    if html is not None:
        write_page(html, results, png=png)
        say(f"{html}: written" + (f", charts in {html.parent / 'plots'}" if png else ""))
    if as_json:
        print_json(_document(results))
    else:
        _show(results)


def _load(data: str, data_format: str | None, run: Path, table: Options) -> Dataset:
    """Load the data; the labels of the first run help to read the cells of a table."""
    from megalabel.data.dataset import Labels
    from megalabel.data.load import load
    from megalabel.model.store import read_labels

    labels = read_labels(run)
    known = Labels([label["text"] for label in labels], [label["uid"] for label in labels])
    rows = "test" if table.test_share is None else "train"
    return load(data, format=data_format, options=replace(table, rows=rows, known=known), say=say)


def _show(runs: list[Results]) -> None:
    from megalabel.report.tables import metrics_table, recipe_table

    first = runs[0]
    rows, labels = first.best["rows"], first.best["labels"]
    sizes = f"{counted(rows, first.data['split'] + ' row')}, {counted(labels, 'label')}"
    typer.echo(f"{first.data['name']}: {sizes}; all metrics in percent\n")
    typer.echo(metrics_table(runs).text())
    differs = recipe_table(runs)
    if differs is not None and differs.rows:
        typer.echo(f"\n{differs.caption}\n{differs.text()}")


def _document(runs: list[Results]) -> dict[str, Any]:
    from megalabel.report.tables import recipe_diff

    names = [run.name for run in runs]
    differs = recipe_diff([run.recipe for run in runs])
    return {
        "data": runs[0].data["name"],
        "split": runs[0].data["split"],
        "runs": [
            {"run": run.name, "recipe": run.recipe, "heads": run.heads, "weights": run.weights, **run.facts}
            for run in runs
        ],
        "recipe_diff": {key: dict(zip(names, values, strict=True)) for key, values in differs.items()},
    }
