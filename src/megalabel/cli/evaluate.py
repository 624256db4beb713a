"""``megalabel evaluate``: measure predictions."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from megalabel.cli._options import DataOption, FormatOption, JsonOption, print_json, say

__all__ = ["evaluate"]


def evaluate(
    predictions: Annotated[
        Path,
        typer.Option(
            metavar="FILE", help='JSON lines {"uid", "labels": [ids, best first], "scores": [...]}, plain or gzip.'
        ),
    ],
    data: DataOption,
    split: Annotated[str, typer.Option(help="Which rows the predictions are for: test, val or train.")] = "test",
    data_format: FormatOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure a predictions file: precision, recall, nDCG, propensity-scored metrics, coverage and more.

    Filter pairs of the data leave a ranking before it is cut to k. Figures are percent.

    Example: megalabel evaluate --predictions mine.jsonl --data pydocs
    """
    from megalabel.data.load import load
    from megalabel.data.predictions import read_predictions
    from megalabel.metrics.measure import measure

    start = time.perf_counter()
    dataset = load(data, format=data_format, say=say)
    rows = dataset.split(split)
    ids, missing = read_predictions(predictions, rows, len(dataset.labels))
    if missing:
        say(f"{predictions}: {missing:,} of {len(rows):,} {split} rows have no prediction and count as misses")
    report = measure(dataset, ids, split)
    if as_json:
        origin = {"data": dataset.name, "split": split, "predictions": str(predictions)}
        print_json({**report.to_dict(), **origin, "seconds": round(time.perf_counter() - start, 2)})
    else:
        typer.echo(report.table())
