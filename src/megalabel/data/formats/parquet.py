"""Parquet tables: one file, or a folder with train, test, labels and optional val.

Columns: text, labels (a list of label uids, a list of label ids, or one text with
separators), optional uid and weights (a list), and in a single file an optional split.
Pages are written with checksums, which are verified on reading.
labels.parquet holds uid and text of each label. Needs the package pyarrow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from megalabel.data.dataset import Dataset
from megalabel.data.formats import Options
from megalabel.data.formats._sniff import head
from megalabel.data.formats._tables import Table, has_weights, label_rows, point_rows, read_tables
from megalabel.data.formats.folder import write_card, write_filters
from megalabel.errors import DataError, MissingExtraError
from megalabel.files import find, open_bytes, writing
from megalabel.progress import track

__all__ = ["looks_like", "open_parquet", "read", "write"]

_ROWS = 65536  # rows held at once


def looks_like(path: Path) -> str | None:
    """Detect train.parquet in a folder, or a Parquet file by its first bytes or its name."""
    if path.is_dir():
        train = find(path, "train.parquet", "trn.parquet", "training.parquet")
        return None if train is None else f"it holds {train.name}"
    if head(path, 4) == b"PAR1":
        return "it starts with PAR1"
    return "its name ends in .parquet" if path.suffix == ".parquet" else None


def read(path: Path, options: Options) -> Dataset:
    """Read the file or folder; any error in it is one DataError with file and row."""
    return read_tables(path, options, ".parquet", open_parquet)


def open_parquet(path: Path) -> Table:
    """Open a Parquet file as a table; its lines are rows, counted from 1."""
    pa, parquet = _pyarrow("reading Parquet")
    with open_bytes(path) as stream:
        try:
            columns = parquet.ParquetFile(stream).schema_arrow.names
        except (pa.ArrowException, OSError, ValueError) as error:
            raise _broken(path, error) from error
    return Table(path, columns, partial(_rows, path))


def write(data: Dataset, folder: Path) -> None:
    """Write train, test, val and labels tables into an empty folder."""
    pa, _ = _pyarrow("writing Parquet")
    text = [("uid", pa.string()), ("text", pa.string())]
    _write_table(folder / "labels.parquet", pa.schema(text), label_rows(data.labels))
    for name, split in data.splits.items():
        schema = [*text, ("labels", pa.list_(pa.string()))]
        schema += [("weights", pa.list_(pa.float32()))] if has_weights(split) else []
        rows = track(point_rows(split, data.labels.uids), f"writing {name}.parquet", total=len(split))
        _write_table(folder / f"{name}.parquet", pa.schema(schema), rows)
    write_filters(data, folder)
    write_card(data, folder)


def _rows(path: Path, columns: Sequence[str]) -> Iterator[tuple[int, Sequence[Any]]]:
    pa, parquet = _pyarrow("reading Parquet")
    number = 0
    with open_bytes(path) as stream:
        try:
            source = parquet.ParquetFile(stream, page_checksum_verification=True)
            batches = source.iter_batches(_ROWS, columns=list(columns))
            cells = ([batch.column(name).to_pylist() for name in columns] for batch in batches)
            rows = (row for lists in cells for row in zip(*lists, strict=True))
            for number, row in enumerate(track(rows, f"reading {path.name}", source.metadata.num_rows), start=1):
                yield number, row
        except (pa.ArrowException, OSError, ValueError) as error:
            raise _broken(path, error) from error
    if number == 0:
        raise DataError("this file holds no rows", path=path)


def _write_table(path: Path, schema: Any, rows: Iterable[Sequence[Any]]) -> None:
    pa, parquet = _pyarrow("writing Parquet")
    source = iter(rows)
    with writing(path) as out, parquet.ParquetWriter(out, schema, write_page_checksum=True) as writer:
        while block := list(islice(source, _ROWS)):
            lists = zip(*(row[: len(schema)] for row in block), strict=True)
            try:
                arrays = [pa.array(column, field.type) for column, field in zip(lists, schema, strict=True)]
            except UnicodeEncodeError as error:
                raise DataError(f"a text cannot be written ({error.reason})", path=path) from error
            writer.write_table(pa.table(arrays, schema=schema))


def _broken(path: Path, error: Exception) -> DataError:
    return DataError(f"not a Parquet file, or a damaged one ({error})", path=path)


def _pyarrow(what: str) -> tuple[Any, Any]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise MissingExtraError("pyarrow", extra="parquet", what=what) from error
    return pyarrow, parquet
