"""Shared by CSV and TSV: read any delimited text with a header, write it so that every text survives."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from megalabel.data.dataset import Dataset, Split
from megalabel.data.formats._cells import joiner
from megalabel.data.formats._sniff import head
from megalabel.data.formats._tables import KNOWN, LABELS, TEXT, Table, has_weights, label_rows, point_rows
from megalabel.data.formats.folder import write_card, write_filters
from megalabel.errors import DataError
from megalabel.files import decode, find, read_lines, writing
from megalabel.progress import track

__all__ = ["looks_delimited", "open_delimited", "open_stream", "quote_row", "write_delimited"]

DELIMITERS = (",", "\t", ";")
_LONGEST_CELL = 2**31 - 1
_QUOTED = re.compile(r'["\r\n]|^\s|\s$')


def looks_delimited(path: Path, ending: str, delimiters: str) -> str | None:
    """Detect a folder by its train table, a file by its header and name."""
    if path.is_dir():
        train = find(path, f"train{ending}", f"trn{ending}", f"training{ending}")
        return None if train is None else f"it holds {train.name}"
    delimiter, columns = sniff(path, ",")
    names = {column.strip().lower() for column in columns}
    by_header = bool(names & set(TEXT) and names & set(LABELS))
    suffix = Path(path.name.removesuffix(".gz")).suffix.lower()
    mine = delimiter in delimiters if len(columns) > 1 else suffix == ending
    if not mine or not (by_header or suffix in {".csv", ".tsv", ".tab"}):
        return None
    return f"its header is: {', '.join(columns[:6])}" if columns else f"its name ends in {ending}"


def sniff(path: Path, first: str) -> tuple[str, list[str]]:
    """Return the delimiter that makes most sense of the header, ``first`` where several do, and the columns."""
    return _best_delimiter(head(path).decode("utf-8", errors="replace"), first)


def _best_delimiter(text: str, first: str) -> tuple[str, list[str]]:
    best: tuple[tuple[int, int], str, list[str]] = ((-1, -1), first, [])
    for delimiter in (first, *(d for d in DELIMITERS if d != first)):
        try:
            columns = next(csv.reader([f"{line}\n" for line in text.split("\n")], delimiter=delimiter), [])
        except csv.Error:
            continue
        score = (sum(column.strip().lower() in KNOWN for column in columns), len(columns))
        if score > best[0]:
            best = (score, delimiter, columns)
    return best[1], best[2]


def open_delimited(path: Path, first: str) -> Table:
    """Open a table with a header; ``first`` is the delimiter to try first."""
    csv.field_size_limit(_LONGEST_CELL)
    delimiter, _ = sniff(path, first)
    plain = delimiter == "\t" and _unquoted(path)
    records = partial(_records, path, delimiter, plain)
    _, header = next(records(), (1, []))
    if not header:
        raise DataError("this file has no header", path=path)
    return Table(path, header, partial(_pick, path, header, records))


def open_stream(path: Path, lines: Iterator[tuple[int, bytes]], first: str) -> Table:
    """Open a table with a header that can be read only once; ``path`` names it in messages."""
    csv.field_size_limit(_LONGEST_CELL)
    number, line = next(lines, (1, b""))
    delimiter, _ = _best_delimiter(decode(line, path, number), first)
    records = _read_records(path, chain([(number, line)], lines), delimiter, plain=False)
    _, header = next(records, (1, []))
    if not header:
        raise DataError("this file has no header", path=path)
    return Table(path, header, partial(_pick, path, header, partial(chain, [(1, header)], records)))


def write_delimited(data: Dataset, folder: Path, ending: str, delimiter: str) -> None:
    """Write train, test, val and labels tables into an empty folder."""
    path = folder / f"labels{ending}"
    _write_table(path, delimiter, ["uid", "text"], label_rows(data.labels), len(data.labels))
    for name, split in data.splits.items():
        columns = ["uid", "text", "labels", "weights"] if has_weights(split) else ["uid", "text", "labels"]
        rows = _point_cells(split, data.labels.uids)
        _write_table(folder / f"{name}{ending}", delimiter, columns, rows, len(split))
    write_filters(data, folder)
    write_card(data, folder)


def quote_row(cells: Sequence[str], delimiter: str, path: Path) -> bytes:
    """Return one line of a table.

    The csv module of Python 3.11 leaves a lone carriage return unquoted when lines end
    in a line feed, and reads it back as the end of a row; so quoting is done here.

    >>> quote_row(["a", "b c", "d,e"], ",", Path("train.csv")).strip()
    b'a,b c,"d,e"'
    """
    quoted = (
        '"' + cell.replace('"', '""') + '"' if delimiter in cell or _QUOTED.search(cell) else cell for cell in cells
    )
    try:
        return f"{delimiter.join(quoted)}\n".encode()
    except UnicodeEncodeError as error:
        raise DataError(f"{cells[0]!r:.60} cannot be written ({error.reason})", path=path) from error


def _point_cells(split: Split, label_uids: Sequence[str]) -> Iterator[Sequence[str]]:
    weighted = has_weights(split)
    labels_cell, weights_cell = joiner(label_uids)
    for uid, text, labels, weights in point_rows(split, label_uids):
        cells = (uid, text, labels_cell(labels) if labels else "")
        yield (*cells, weights_cell(weights) if weights else "") if weighted else cells


def _write_table(path: Path, delimiter: str, columns: list[str], rows: Iterable[Sequence[str]], total: int) -> None:
    with writing(path) as out:
        out.write(quote_row(columns, delimiter, path))
        for row in track(rows, f"writing {path.name}", total=total):
            out.write(quote_row(row, delimiter, path))


def _records(path: Path, delimiter: str, plain: bool) -> Iterator[tuple[int, list[str]]]:
    """Yield (line, cells) of every row that is not blank, the header first."""
    return _read_records(path, read_lines(path), delimiter, plain)


def _read_records(
    path: Path, source: Iterable[tuple[int, bytes]], delimiter: str, plain: bool
) -> Iterator[tuple[int, list[str]]]:
    lines = (decode(line, path, number) + "\n" for number, line in source)
    if plain:
        reader = csv.reader(lines, delimiter=delimiter, strict=True, quoting=csv.QUOTE_NONE)
    else:
        reader = csv.reader(lines, delimiter=delimiter, strict=True)
    start = 1
    while True:
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            remedy = "double every quote inside a quoted cell"
            raise DataError(f"broken quotes ({error})", path=path, line=start, remedy=remedy) from error
        if cells:
            yield start, cells
        start = reader.line_num + 1


def _pick(
    path: Path, header: list[str], records: Callable[[], Iterator[tuple[int, list[str]]]], columns: Sequence[str]
) -> Iterator[tuple[int, list[Any]]]:
    places = [header.index(column) for column in columns]
    rows = records()
    next(rows, None)
    for line, cells in rows:
        if len(cells) != len(header):
            raise DataError(f"{len(cells)} cells, but the header has {len(header)}", path=path, line=line)
        yield line, [cells[place] for place in places]


def _unquoted(path: Path) -> bool:
    """Return whether a tab-separated file uses no quotes: it is only consistent when read without them."""
    if not any(line.startswith(b'"') or b'\t"' in line for _, line in read_lines(path)):
        return False
    return not _is_whole(path, plain=False) and _is_whole(path, plain=True)


def _is_whole(path: Path, plain: bool) -> bool:
    try:
        return len({len(cells) for _, cells in _records(path, "\t", plain)}) == 1
    except DataError:
        return False
