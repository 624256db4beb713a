"""``megalabel evaluate``: measure a trained model or a predictions file."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from megalabel.cli._options import (
    DataOption,
    DeviceOption,
    FormatOption,
    HeadsOption,
    JsonOption,
    RuleOption,
    TailOption,
    WithOption,
    load_model,
    print_json,
    say,
    table_command,
)
from megalabel.wording import counted

if TYPE_CHECKING:
    from megalabel.data.dataset import Dataset
    from megalabel.data.formats import Options
    from megalabel.metrics.report import Report
    from megalabel.model import Ensemble, Model

__all__ = ["evaluate"]


@table_command
def evaluate(
    data: DataOption,
    run: Annotated[Path | None, typer.Argument(metavar="[RUN]", help="A run folder or a saved model.")] = None,
    predictions: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="JSON lines with uid, labels (ids or names, best first) and scores."),
    ] = None,
    split: Annotated[str, typer.Option(help="Rows to evaluate: test, val or train.")] = "test",
    heads: HeadsOption = "all",
    tail: TailOption = None,
    device: DeviceOption = "auto",
    others: WithOption = None,
    by: RuleOption = None,
    exact: Annotated[
        bool, typer.Option("--exact", help="Ignore the index saved with the model and search exactly.")
    ] = False,
    annif: Annotated[
        bool, typer.Option("--annif", help="Also print what `annif eval` does: F1@5, NDCG@5, ... of 10 labels a text.")
    ] = False,
    data_format: FormatOption = None,
    as_json: JsonOption = False,
    *,
    table: Options,
) -> None:
    """Evaluate a model or a predictions file.

    Prints P, R, nDCG, propensity-scored metrics, coverage and more, in percent. Filter pairs
    of the data are removed from a ranking before it is cut to k.

    All rows of one table are test rows, unless it has a column named split. Labels are matched
    by uid or text; those that the model does not know are named and count as missed.

    Example: megalabel evaluate runs/first --data pydocs

    Example: megalabel evaluate runs/first --data new_rows.csv

    Example: megalabel evaluate --predictions mine.jsonl --data pydocs

    Example: megalabel evaluate runs/first --with runs/second --with runs/third --data pydocs
    """
    from megalabel.data.load import load
    from megalabel.errors import SettingError

    if (run is None) == (predictions is None):
        raise SettingError("give either a RUN folder or --predictions FILE", remedy="see megalabel evaluate --help")
    if run is None and (others or by):
        raise SettingError("--with and --by need a RUN folder", remedy="see megalabel evaluate --help")
    start = time.perf_counter()
    model = None if run is None else load_model([run, *(others or [])], by, tail, device, exact)
    rows = "test" if table.test_share is None else "train"
    options = replace(table, rows=rows, known=None if model is None else model.labels)
    dataset = load(data, format=data_format, options=options, say=say)
    if model is not None:
        report, origin = _evaluate_model(model, dataset, split, heads, annif)
    else:
        assert predictions is not None
        report, origin = _evaluate_file(predictions, dataset, split, annif)
    if as_json:
        about = {
            "data": dataset.name,
            "split": split,
            **({} if run is None else {"run": str(run)}),
            **({"with": [str(other) for other in others], "by": by or "rank"} if others else {}),
            **origin,
        }
        print_json({**report.to_dict(), **about, "seconds": round(time.perf_counter() - start, 2)})
    else:
        typer.echo(report.table())


def _evaluate_model(
    model: Model | Ensemble, data: Dataset, split: str, heads: str, annif: bool
) -> tuple[Report, dict[str, Any]]:
    import resource

    matched = model.match(data, split)
    for line in matched.notes:
        say(line)
    report = model.evaluate(matched, heads=heads, annif=annif)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    unknown = {"unknown_labels": list(matched.unknown)} if matched.unknown else {}
    return report, {"heads": heads, "peak_mib": round(peak), **unknown}


def _evaluate_file(path: Path, data: Dataset, split: str, annif: bool) -> tuple[Report, dict[str, Any]]:
    from megalabel.data.predictions import read_predictions
    from megalabel.metrics.measure import measure

    rows = data.split(split)
    ids, missing = read_predictions(path, rows, len(data.labels), data.labels)
    unknown = len(set(ids[ids >= len(data.labels)].tolist()))
    if unknown:
        labels = counted(unknown, "predicted label")
        say(f"{path}: {labels} {'is' if unknown == 1 else 'are'} not in {data.name}, wrong in every row")
    if missing:
        say(f"{path}: {missing:,} of {len(rows):,} {split} rows have no prediction and count as misses")
    return measure(data, ids, split, annif=annif), {"predictions": str(path)}
