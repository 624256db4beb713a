"""``megalabel predict``: labels for texts."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from megalabel.cli._options import DeviceOption, HeadsOption, JsonOption, TailOption, print_json, say

if TYPE_CHECKING:
    from megalabel.model.prediction import PredictedRow

__all__ = ["predict"]


def predict(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder or a saved model.")],
    text: Annotated[list[str] | None, typer.Option(help="A text; may be given several times.")] = None,
    source: Annotated[
        Path | None,
        typer.Option("--input", metavar="FILE", help="One text a line, JSON lines, CSV, TSV or Parquet; any size."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write .jsonl, .csv, .tsv or .parquet.")
    ] = None,
    k: Annotated[int, typer.Option("-k", help="Labels for each text.", min=1)] = 5,
    min_score: Annotated[
        float | None, typer.Option(help="Leave out labels below; for a fused model that is a probability.")
    ] = None,
    heads: HeadsOption = "all",
    heads_scores: Annotated[bool, typer.Option("--heads-scores", help="Give the score by every head too.")] = False,
    tail: TailOption = None,
    input_format: Annotated[
        str | None, typer.Option("--input-format", help="text, jsonl, csv, tsv, parquet; by the name if left out.")
    ] = None,
    out_format: Annotated[
        str | None, typer.Option("--format", help="jsonl, csv, tsv or parquet; by the name of --out if left out.")
    ] = None,
    text_column: Annotated[str | None, typer.Option(help="Tables: the column with the text.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file of --out.")] = False,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Print the best labels of texts, or write those of a whole file.

    A file is read and written as a stream: memory does not grow with it. The file of --out has its
    name only once it is whole.

    Example: megalabel predict runs/first --text "inverse of a square matrix"

    Example: megalabel predict runs/first --input texts.csv --out found.jsonl -k 10 --min-score 0.2

    With several processes: torchrun --nproc-per-node=4 -m megalabel predict ...
    """
    from megalabel.errors import SettingError
    from megalabel.model import Model
    from megalabel.model.predict_file import file_format, predict_ranks, predict_stream, read_texts
    from megalabel.training.distributed import join

    given = [(str(place), one) for place, one in enumerate(text or [])]
    with join() as ranks:
        if not given and source is None:
            raise SettingError("there is nothing to predict", remedy="give --text or --input")
        kind = None if out is None else ranks.broadcast(lambda: _target(out, out_format, source, overwrite))
        if source is not None:
            file_format(source, input_format)
        model = Model.load(run, tail=tail, device=ranks.device(device))
        if k > len(model.labels) and ranks.first:
            say(f"the model has {len(model.labels):,} labels, so -k {k:,} gives all of them")
        read: Iterable[tuple[str, str]] = () if source is None else read_texts(source, input_format, text_column)
        options: dict[str, Any] = {"k": k, "heads": heads, "min_score": min_score, "head_scores": heads_scores}
        if ranks.alone:
            found = predict_stream(model, chain(given, read), **options)
        else:
            found = predict_ranks(model, chain(given, read), ranks, **options)
        if not ranks.first:
            deque(found, maxlen=0)  # the first rank has them
        elif out is not None and kind is not None:
            rows = _write(out, kind, found, model.heads if heads_scores else [])
            say(f"{rows:,} texts, written to {out}")
        elif as_json:
            print_json({"predictions": [_document(row) for rows in found for row in rows]})
        else:
            _print(found)


def _target(out: Path, given: str | None, source: Path | None, overwrite: bool) -> str:
    """Return the format to write, or refuse before any work is done."""
    from megalabel.errors import SettingError, WriteError
    from megalabel.model.predict_file import file_format

    kind = file_format(out, given)
    if kind == "text":
        raise SettingError(
            f"predictions cannot be written as {out.name}", remedy="choose .jsonl, .csv, .tsv or .parquet"
        )
    if source is not None and out.exists() and source.exists() and out.samefile(source):
        raise SettingError("--out is the file of --input", remedy="choose another name")
    if out.exists() and not overwrite:
        raise WriteError("this file exists", path=out, remedy="choose another name or --overwrite")
    return kind


def _write(out: Path, kind: str, found: Iterable[list[PredictedRow]], heads: list[str]) -> int:
    from megalabel.model.predict_file import write_predictions

    total = 0
    with write_predictions(out, kind, heads) as write:
        for rows in found:
            write(rows)
            total += len(rows)
    return total


def _document(row: PredictedRow) -> list[dict[str, object]]:
    """Return the labels of one text for JSON."""
    return [
        {"id": one.id, "uid": one.uid, "text": one.text, "score": one.score}
        | ({"heads": {name: values[place] for name, values in row.heads.items()}} if row.heads else {})
        for place, one in enumerate(row.labels)
    ]


def _print(found: Iterable[list[PredictedRow]]) -> None:
    for row in chain.from_iterable(found):
        typer.echo(row.text)
        for place, one in enumerate(row.labels):
            own = "".join(f"  {name} {values[place]:.3f}" for name, values in row.heads.items())
            typer.echo(f"  {one.score:.3f}  {one.text}{own}")
