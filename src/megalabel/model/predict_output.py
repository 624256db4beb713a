"""Write predictions as tables, to a file or to standard output: one row a text, or one row a label of a text."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

import orjson

from megalabel.errors import DataError, MissingExtraError, SettingError
from megalabel.files import writing
from megalabel.model.predict_input import STREAM, InputRows, plain_text

if TYPE_CHECKING:
    from megalabel.data.dataset import Labels
    from megalabel.model.prediction import PredictedRow

__all__ = ["Layout", "write_predictions"]

Layout = Literal["text", "label"]
Write = Callable[[Sequence["PredictedRow"], Sequence[dict[str, Any]]], None]
_TAKEN = {"uid", "labels", "label_uids", "label_texts", "scores", "heads"}  # names of what is predicted


@contextmanager
def write_predictions(
    path: Path,
    format: str,
    labels: Labels,
    heads: Sequence[str] = (),
    *,
    source: InputRows | None = None,
    layout: Layout = "text",
) -> Iterator[Write]:
    """Provide a function that appends predicted rows, each with its own columns.

    A file appears under its name only once it is complete; to standard output, every call writes at once. A column of
    the input that has the name of a predicted one is called ``input_NAME``.

    ``jsonl``: one object per text, as ``megalabel evaluate --predictions`` reads it. ``csv`` and ``tsv``: one row per
    text, with the uids of its labels in one cell, in a form that tables of training rows are read in; or with
    ``layout="label"`` one row per label of a text, without columns of the input. ``parquet``: one row per text, with
    lists.

    Args:
        path: the file; ``-`` is standard output.
        format: jsonl, csv, tsv or parquet.
        labels: all labels of the model.
        heads: heads whose scores the rows hold.
        source: where the columns come from; None for no columns.
        layout: what a row of a csv or tsv table is.
    """
    if format == "parquet":
        if path == STREAM:
            raise SettingError("Parquet cannot be written to standard output", remedy="choose jsonl, csv or tsv")
        with _parquet(path, heads, source) as write:
            yield write
        return
    makers = {"jsonl": _json_writer, "csv": _table_writer, "tsv": _table_writer}
    if format not in makers:
        raise SettingError(f"cannot write predictions as {format}", remedy="choose jsonl, csv, tsv or parquet")
    make = _label_writer if layout == "label" and format != "jsonl" else makers[format]
    delimiter = "\t" if format == "tsv" else ","
    if path != STREAM:
        with writing(path) as out:
            yield make(out, path, delimiter, labels, heads, source)
        return
    out = sys.stdout.buffer
    write = make(out, path, delimiter, labels, heads, source)

    def flushed(rows: Sequence[PredictedRow], cells: Sequence[dict[str, Any]]) -> None:
        write(rows, cells)
        out.flush()

    yield flushed


def _own_names(source: InputRows | None, taken: set[str]) -> dict[str, str]:
    """Return what each column of the input is called in the output; its uid is that of the row."""
    columns = () if source is None else source.columns
    return {name: _own_name(name, taken) for name in columns if name != "uid"}


def _own_name(name: str, taken: set[str]) -> str:
    return f"input_{name}" if name in taken else name


def _json_writer(
    out: IO[bytes], path: Path, delimiter: str, labels: Labels, heads: Sequence[str], source: InputRows | None
) -> Write:
    def write(rows: Sequence[PredictedRow], cells: Sequence[dict[str, Any]]) -> None:
        for row, own in zip(rows, cells, strict=True):
            kept = {_own_name(name, _TAKEN): value for name, value in own.items() if name != "uid"}
            predicted = _as_lists(replace(row, heads={})) | ({"heads": row.heads} if row.heads else {})
            document = {"uid": row.uid, **(kept if source is not None else {}), **predicted}
            try:
                out.write(orjson.dumps(document, default=str, option=orjson.OPT_APPEND_NEWLINE))
            except orjson.JSONEncodeError as error:
                raise DataError(f"cannot write row {row.uid!r:.60} ({error})", path=path) from error

    return write


def _table_writer(
    out: IO[bytes], path: Path, delimiter: str, labels: Labels, heads: Sequence[str], source: InputRows | None
) -> Write:
    from megalabel.data.formats._cells import joiner
    from megalabel.data.formats._delimited import quote_row

    named = list(labels.texts) != list(labels.uids)
    join_uids, _ = joiner(labels.uids)
    join_texts, _ = joiner(labels.texts)
    predicted = ["labels", *(["label_texts"] if named else []), "scores", *(f"score_{head}" for head in heads)]
    names = _own_names(source, {"uid", *predicted})
    out.write(quote_row(["uid", *names.values(), *predicted], delimiter, path))

    def write(rows: Sequence[PredictedRow], cells: Sequence[dict[str, Any]]) -> None:
        for row, own in zip(rows, cells, strict=True):
            odd = None if source is None else next((name for name in own if name != "uid" and name not in names), None)
            if odd is not None:
                what = f"row {row.uid!r:.60} has {odd!r:.60}, the first row of the input has not"
                raise DataError(what, path=path, remedy="write .jsonl, which keeps all keys of every row")
            texts = [join_texts([label.text for label in row.labels]) if row.labels else ""] if named else []
            scores = [_numbers([label.score for label in row.labels]), *(_numbers(row.heads[head]) for head in heads)]
            uids = join_uids([label.uid for label in row.labels]) if row.labels else ""
            kept = [plain_text(own.get(name)) for name in names]
            out.write(quote_row([row.uid, *kept, uids, *texts, *scores], delimiter, path))

    return write


def _numbers(values: Sequence[float]) -> str:
    return "|".join(f"{value:.6g}" for value in values)


def _label_writer(
    out: IO[bytes], path: Path, delimiter: str, labels: Labels, heads: Sequence[str], source: InputRows | None
) -> Write:
    from megalabel.data.formats._delimited import quote_row

    names = ["uid", "rank", "label", "label_uid", "label_text", "score", *(f"score_{head}" for head in heads)]
    out.write(quote_row(names, delimiter, path))

    def write(rows: Sequence[PredictedRow], cells: Sequence[dict[str, Any]]) -> None:
        for row in rows:
            for place, label in enumerate(row.labels):
                by_head = [f"{row.heads[head][place]:.6g}" for head in heads]
                values = [row.uid, str(place + 1), str(label.id), label.uid, label.text, f"{label.score:.6g}", *by_head]
                out.write(quote_row(values, delimiter, path))

    return write


@contextmanager
def _parquet(path: Path, heads: Sequence[str], source: InputRows | None) -> Iterator[Write]:
    """Write lists; columns of a Parquet input keep their types, others are texts."""
    pyarrow, parquet = _pyarrow()
    lists = {"labels": pyarrow.int64(), "label_uids": pyarrow.string(), "label_texts": pyarrow.string()}
    lists |= dict.fromkeys(["scores", *(f"score_{head}" for head in heads)], pyarrow.float32())
    names = _own_names(source, {"uid", *lists})
    typed = source is not None and source.kind == "parquet" and source.source is not None
    types = parquet.read_schema(source.source) if typed and source is not None else None
    own = [(name, pyarrow.string() if types is None else types.field(old).type) for old, name in names.items()]
    columns = [("uid", pyarrow.string()), *own, *((name, pyarrow.list_(item)) for name, item in lists.items())]
    schema = pyarrow.schema(columns)
    with writing(path) as out, parquet.ParquetWriter(out, schema) as writer:

        def write(rows: Sequence[PredictedRow], cells: Sequence[dict[str, Any]]) -> None:
            documents = []
            for row, kept in zip(rows, cells, strict=True):
                mine = {new: kept.get(old) if typed else plain_text(kept.get(old)) for old, new in names.items()}
                documents.append(mine | _as_lists(row))
            writer.write_table(pyarrow.Table.from_pylist(documents, schema))

        yield write


def _as_lists(row: PredictedRow) -> dict[str, Any]:
    return {
        "uid": row.uid,
        "labels": [label.id for label in row.labels],
        "label_uids": [label.uid for label in row.labels],
        "label_texts": [label.text for label in row.labels],
        "scores": [label.score for label in row.labels],
        **{f"score_{head}": values for head, values in row.heads.items()},
    }


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise MissingExtraError("pyarrow", extra="parquet", what="writing Parquet") from error
    return pyarrow, parquet
