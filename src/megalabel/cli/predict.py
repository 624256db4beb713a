"""``megalabel predict``: the best labels of texts."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from megalabel.cli._options import (
    DeviceOption,
    HeadsOption,
    JsonOption,
    RuleOption,
    TailOption,
    WithOption,
    load_model,
    print_json,
    say,
)

if TYPE_CHECKING:
    from megalabel.data.dataset import Labels
    from megalabel.model.predict_input import OwnColumns
    from megalabel.model.prediction import PredictedRow

__all__ = ["predict"]


def predict(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder or a saved model.")],
    text: Annotated[list[str] | None, typer.Option(help="A text; repeat for several.")] = None,
    source: Annotated[
        Path | None,
        typer.Option(
            "--input", metavar="FILE", help="One text per line, JSON lines, CSV, TSV or Parquet; - for standard input."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Write .jsonl, .csv, .tsv or .parquet; - for standard output."),
    ] = None,
    k: Annotated[
        int | None,
        typer.Option("-k", help="Labels per text; without it, those above the threshold of the model.", min=1),
    ] = None,
    goal: Annotated[
        str | None, typer.Option(help="Choose the threshold for micro-f1 (default), sample-f1 or macro-f1.")
    ] = None,
    precision: Annotated[
        float | None,
        typer.Option(help="Choose the threshold for this precision on validation texts, such as 0.9."),
    ] = None,
    min_score: Annotated[
        float | None,
        typer.Option(help="Drop labels with a lower score, a probability if the model is fused; alone, the threshold."),
    ] = None,
    heads: HeadsOption = "all",
    heads_scores: Annotated[bool, typer.Option("--heads-scores", help="Also write the score of every head.")] = False,
    tail: TailOption = None,
    others: WithOption = None,
    by: RuleOption = None,
    input_format: Annotated[
        str | None,
        typer.Option("--input-format", help="text, jsonl, csv, tsv or parquet; detected from the name by default."),
    ] = None,
    out_format: Annotated[
        str | None,
        typer.Option("--format", help="jsonl, csv, tsv or parquet; detected from the name of --out by default."),
    ] = None,
    layout: Annotated[
        str, typer.Option("--rows", metavar="text|label", help="csv, tsv: one row per text, or per label of a text.")
    ] = "text",
    columns: Annotated[
        bool, typer.Option("--columns/--no-columns", help="Keep the columns of the input in the output.")
    ] = True,
    text_column: Annotated[str | None, typer.Option(help="Tables: the column with the text.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file of --out if it exists.")] = False,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Predict the labels of texts or of a whole file.

    A text gets the labels above a threshold that training chose on validation texts; with -k, the
    k best. A model without a threshold returns the five best, and says so.

    Files are streamed, so memory does not grow with their size. The file of --out appears
    only once it is complete. Columns of the input are kept; those called like a predicted
    one, such as labels, become input_labels.

    Example: megalabel predict runs/first --text "inverse of a square matrix"

    Example: megalabel predict runs/first --text "inverse of a square matrix" --precision 0.9

    Example: megalabel predict runs/first --input texts.csv --out labels.jsonl -k 10 --min-score 0.2

    Example: cat texts.txt | megalabel predict runs/first --input - --out - --format csv

    Example: megalabel predict runs/first --with runs/second --text "inverse of a square matrix"

    With several processes: torchrun --nproc-per-node=4 -m megalabel predict ...
    """
    from megalabel.errors import SettingError
    from megalabel.model.cut import make_cut
    from megalabel.model.predict_file import predict_ranks, predict_stream
    from megalabel.model.predict_input import STREAM, InputRow, InputRows, OwnColumns, file_format, read_rows
    from megalabel.training.distributed import join

    typed = [
        InputRow(str(row), words, {"text": words} if source is None else {}) for row, words in enumerate(text or [])
    ]
    if layout not in ("text", "label"):
        raise SettingError(f"--rows must be text or label, not {layout!r}")
    with join(remedy="start again") as ranks:
        if not typed and source is None:
            raise SettingError("nothing to predict", remedy="give --text or --input")
        if heads_scores and others:
            raise SettingError("--heads-scores is for one run", remedy="leave out --with")
        kind = None if out is None else ranks.broadcast(lambda: _out_format(out, out_format, source, overwrite))
        if source is not None:
            file_format(source, input_format)  # an unknown format is an error before the model is read
        model = load_model([run, *(others or [])], by, tail, ranks.device(device))
        wanted: dict[str, Any] = {"goal": goal, "precision": precision, "min_score": min_score, "heads": heads}
        cut = make_cut(model, k, **wanted)
        if k is not None and k > len(model.labels) and ranks.first:
            say(f"the model has {len(model.labels):,} labels; -k {k:,} returns all of them")
        rows = InputRows(("text",), iter(())) if source is None else read_rows(source, input_format, text_column)
        own = OwnColumns(chain(typed, rows.rows), keep=ranks.first and out is not None and columns)
        options: dict[str, Any] = {"k": k, **wanted, "head_scores": heads_scores}
        if ranks.alone:
            blocks = predict_stream(model, own.texts(), **options)
        else:
            blocks = predict_ranks(model, own.texts(), ranks, **options)
        if not ranks.first:
            deque(blocks, maxlen=0)  # rank 0 gets them
        elif out is not None and kind is not None:
            shown = {
                "heads": model.heads if heads_scores else [],
                "layout": layout,
                "source": rows if columns else None,
            }
            count = _write(out, kind, blocks, own, model.labels, shown)
            if out != STREAM:
                say(f"{out}: wrote the labels of {count:,} texts")
        elif as_json:
            threshold = None if cut.threshold is None else cut.threshold.brief()
            print_json({"predictions": [_document(row) for rows in blocks for row in rows], "threshold": threshold})
        else:
            _print(blocks)
        if ranks.first and cut.about is not None:
            say(cut.about)


def _out_format(out: Path, name: str | None, source: Path | None, overwrite: bool) -> str:
    """Return the format to write; refuse a target that cannot be written, before any work."""
    from megalabel.errors import SettingError, WriteError
    from megalabel.model.predict_input import STREAM, file_format

    kind = "jsonl" if out == STREAM and name is None else file_format(out, name)
    if out == STREAM:
        if kind in ("text", "parquet"):
            raise SettingError(f"cannot write {kind} to standard output", remedy="--format jsonl, csv or tsv")
        return kind
    if kind == "text":
        raise SettingError(f"cannot write predictions as {out.name}", remedy="choose .jsonl, .csv, .tsv or .parquet")
    if source is not None and out.exists() and source.exists() and out.samefile(source):
        raise SettingError("--out and --input are the same file", remedy="choose another name")
    if out.exists() and not overwrite:
        raise WriteError("this file exists", path=out, remedy="choose another name or --overwrite")
    return kind


def _write(
    out: Path, kind: str, blocks: Iterable[list[PredictedRow]], own: OwnColumns, labels: Labels, options: dict[str, Any]
) -> int:
    from megalabel.model.predict_output import write_predictions

    total = 0
    with write_predictions(out, kind, labels, **options) as write:
        for rows in blocks:
            write(rows, [own.next() for _ in rows])
            total += len(rows)
    return total


def _document(row: PredictedRow) -> list[dict[str, object]]:
    """Return the labels of one text for JSON."""
    return [
        {"id": label.id, "uid": label.uid, "text": label.text, "score": label.score}
        | ({"parents": [{"uid": uid, "text": name} for uid, name in label.parents]} if label.parents else {})
        | ({"heads": {name: values[rank] for name, values in row.heads.items()}} if row.heads else {})
        for rank, label in enumerate(row.labels)
    ]


def _print(blocks: Iterable[list[PredictedRow]]) -> None:
    for row in chain.from_iterable(blocks):
        typer.echo(row.text if row.labels else f"{row.text}\n  no label")
        for rank, label in enumerate(row.labels):
            by_head = "".join(f"  {name} {values[rank]:.3f}" for name, values in row.heads.items())
            typer.echo(f"  {label.score:.3f}  {label.text}{by_head}")
