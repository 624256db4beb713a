"""Read the texts of a file or of standard input, as a stream, with the columns that stand beside them."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from megalabel.errors import DataError, SettingError, nearest
from megalabel.files import decode, json_rows, parse_row, read_lines

if TYPE_CHECKING:
    from megalabel.data.formats._tables import Table

__all__ = [
    "FORMATS",
    "STREAM",
    "InputRow",
    "InputRows",
    "OwnColumns",
    "file_format",
    "plain_text",
    "read_rows",
    "read_texts",
]

FORMATS = ("text", "jsonl", "csv", "tsv", "parquet")
STREAM = Path("-")  # standard input or output
_SUFFIXES = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
}


class InputRow(NamedTuple):
    """One text to predict."""

    uid: str
    text: str
    cells: dict[str, Any]  # its own columns


@dataclass(frozen=True)
class InputRows:
    """The rows of a file, to be read once."""

    columns: tuple[str, ...]  # their own columns; of JSON lines, the keys of the first row
    rows: Iterator[InputRow]
    source: Path | None = None
    kind: str = "text"


class OwnColumns:
    """Keeps the columns of rows on their way to a model, until their predictions come back in the same order."""

    def __init__(self, rows: Iterable[InputRow], *, keep: bool) -> None:
        self._rows, self._keep = rows, keep
        self._waiting: deque[dict[str, Any]] = deque()

    def texts(self) -> Iterator[tuple[str, str]]:
        """Yield (uid, text) of every row."""
        for row in self._rows:
            if self._keep:
                self._waiting.append(row.cells)
            yield row.uid, row.text

    def next(self) -> dict[str, Any]:
        """Return the columns of the next row whose predictions are there."""
        return self._waiting.popleft() if self._keep else {}


def file_format(path: Path, name: str | None = None) -> str:
    """Return the format ``name`` if given, else the format that the file name implies; ``text`` by default.

    >>> [file_format(Path(name)) for name in ("a.jsonl.gz", "a.csv", "a.parquet", "notes.txt")]
    ['jsonl', 'csv', 'parquet', 'text']
    """
    if name is not None:
        if name not in FORMATS:
            raise SettingError(f"unknown format {name!r}", remedy=nearest(name, FORMATS))
        return name
    return _SUFFIXES.get(Path(path.name.removesuffix(".gz")).suffix.lower(), "text")


def read_texts(path: Path, format: str | None = None, column: str | None = None) -> Iterator[tuple[str, str]]:
    """Yield (uid, text) of every row of a file; see :func:`read_rows`."""
    return ((row.uid, row.text) for row in read_rows(path, format, column, own=False).rows)


def read_rows(path: Path, format: str | None = None, column: str | None = None, *, own: bool = True) -> InputRows:
    """Return the rows of a file as a stream; rows without a uid get their number, from 0.

    Args:
        path: one text per line, JSON lines, or a CSV, TSV or Parquet table; gzip is fine. ``-`` is standard input,
            which is text by default and cannot be Parquet.
        format: one of :data:`FORMATS`; detected from the file name by default.
        column: the column or key with the text. By default ``text`` in JSON lines; in tables ``text``,
            ``title`` and similar names are detected.
        own: also read all other columns.
    """
    kind = file_format(path, format)
    if kind == "parquet" and path == STREAM:
        raise SettingError("Parquet cannot be read from standard input", remedy="give a file, or another format")
    if kind == "text":
        rows = (
            InputRow(str(number - 1), text, {"text": text})
            for number, line in _lines(path)
            for text in [decode(line, path, number).removesuffix("\r")]
        )
        return InputRows(("text",), rows, path, kind)
    return _json_rows(path, column or "text") if kind == "jsonl" else _table_rows(path, kind, column, own)


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    if path != STREAM:
        yield from read_lines(path)
        return
    for number, line in enumerate(sys.stdin.buffer, start=1):
        yield number, line[:-1] if line.endswith(b"\n") else line


def _json_rows(path: Path, key: str) -> InputRows:
    documents = json_rows(path) if path != STREAM else _parsed(path)
    first = next(documents, None)
    again = iter(()) if first is None else _chained(first, documents)

    def rows() -> Iterator[InputRow]:
        for place, (number, row) in enumerate(again):
            text = row.get(key)
            if not isinstance(text, str):
                raise DataError(f'row without a text under "{key}"', path=path, line=number)
            yield InputRow(str(row.get("uid", place)), text, row)

    return InputRows(() if first is None else tuple(first[1]), rows(), path, "jsonl")


def _parsed(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in _lines(path):
        if line and not line.isspace():
            yield number, parse_row(line, path, number)


def _chained(first: tuple[int, dict[str, Any]], rest: Iterator[Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    yield first
    yield from rest


def _table_rows(path: Path, kind: str, column: str | None, own: bool) -> InputRows:
    from megalabel.data.formats._tables import TEXT, UID

    table = _open(path, kind)
    text_column = table.column(column, TEXT, "text")
    uid_column = table.guess(UID, [text_column])
    wanted = [text_column] if uid_column is None else [text_column, uid_column]
    columns = tuple(dict.fromkeys(table.columns if own else wanted))

    def rows() -> Iterator[InputRow]:
        for place, (number, values) in enumerate(table.rows(columns)):
            cells = dict(zip(columns, values, strict=True))
            text = cells[text_column]
            if not isinstance(text, str):
                raise DataError(f"row without a text in the column {text_column!r}", path=path, line=number)
            yield InputRow(str(place) if uid_column is None else str(cells[uid_column]), text, cells)

    return InputRows(columns, rows(), path, kind)


def _open(path: Path, kind: str) -> Table:
    if kind == "parquet":
        from megalabel.data.formats.parquet import open_parquet

        return open_parquet(path)
    from megalabel.data.formats._delimited import open_delimited, open_stream

    delimiter = "\t" if kind == "tsv" else ","
    return open_delimited(path, delimiter) if path != STREAM else open_stream(path, _lines(path), delimiter)


def plain_text(value: Any) -> str:
    """Return a value of a column as a cell of a table: texts as they are, other values as JSON.

    >>> [plain_text(value) for value in ("a", None, 2, ["x", "y"], 0.5)]
    ['a', '', '2', '["x","y"]', '0.5']
    """
    if value is None or isinstance(value, str):
        return value or ""
    if not isinstance(value, bool | int | float | list | dict):  # a date of Parquet, say
        return str(value)
    return orjson.dumps(value, default=str).decode()
