"""Texts of a file, one by one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from megalabel.errors import DataError, SettingError, nearest
from megalabel.files import decode, json_rows, read_lines

__all__ = ["FORMATS", "format_of", "read_texts"]

FORMATS = ("text", "jsonl", "csv", "tsv", "parquet")
_ENDINGS = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
}


def format_of(path: Path, given: str | None = None) -> str:
    """Return the format of a file: the one given, else by the ending of its name, else one text a line.

    >>> [format_of(Path(name)) for name in ("a.jsonl.gz", "a.csv", "a.parquet", "notes.txt")]
    ['jsonl', 'csv', 'parquet', 'text']
    """
    if given is not None:
        if given not in FORMATS:
            raise SettingError(f"there is no format {given!r}", remedy=nearest(given, FORMATS))
        return given
    return _ENDINGS.get(Path(path.name.removesuffix(".gz")).suffix.lower(), "text")


def read_texts(path: Path, given: str | None = None, column: str | None = None) -> Iterator[tuple[str, str]]:
    """Yield (uid, text) of every row, without ever holding the file; the uid is the row's number where it has none.

    Args:
        path: lines of text, JSON lines, or a CSV, TSV or Parquet table; may be compressed with gzip.
        given: its format, where the name does not tell.
        column: where the text is; ``text``, ``title`` and the like are found by themselves.
    """
    kind = format_of(path, given)
    if kind == "text":
        for number, line in read_lines(path):
            yield str(number - 1), decode(line, path, number).removesuffix("\r")
    elif kind == "jsonl":
        yield from _json(path, column or "text")
    else:
        yield from _table(path, kind, column)


def _json(path: Path, column: str) -> Iterator[tuple[str, str]]:
    for place, (number, row) in enumerate(json_rows(path)):
        text = row.get(column)
        if not isinstance(text, str):
            raise DataError(f'a row without a text under "{column}"', path=path, line=number)
        yield str(row.get("uid", place)), text


def _table(path: Path, kind: str, column: str | None) -> Iterator[tuple[str, str]]:
    from megalabel.data.formats._tables import TEXT, UID

    if kind == "parquet":
        from megalabel.data.formats.parquet import open_parquet

        table = open_parquet(path)
    else:
        from megalabel.data.formats._delimited import open_delimited

        table = open_delimited(path, "\t" if kind == "tsv" else ",")
    where = table.column(column, TEXT, "text")
    name = table.guess(UID, [where])
    for place, (number, cells) in enumerate(table.rows([where] if name is None else [where, name])):
        if not isinstance(cells[0], str):
            raise DataError(f"a row without a text in the column {where!r}", path=path, line=number)
        yield str(place) if name is None else str(cells[1]), cells[0]
