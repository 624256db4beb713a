"""Predictions written as they come, whole or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import orjson

from megalabel.errors import DataError, MissingExtraError, SettingError
from megalabel.files import writing

if TYPE_CHECKING:
    from megalabel.model.prediction import Prediction

__all__ = ["Found", "write_found"]


@dataclass(frozen=True, slots=True)
class Found:
    """The labels of one text, best first, and their scores by each head where asked for."""

    uid: str
    text: str
    labels: Sequence[Prediction]
    heads: dict[str, list[float]]


@contextmanager
def write_found(path: Path, kind: str, heads: Sequence[str]) -> Iterator[Callable[[Sequence[Found]], None]]:
    """Give a function that writes some rows; the file has its name only once all are written.

    ``jsonl``: one object a text, which ``megalabel evaluate --predictions`` reads. ``csv`` and
    ``tsv``: one row for each label of a text. ``parquet``: one row a text, with lists.
    """
    if kind == "parquet":
        pyarrow, parquet = _pyarrow()
        lists = {"labels": pyarrow.int64(), "label_uids": pyarrow.string(), "label_texts": pyarrow.string()}
        lists |= dict.fromkeys(["scores", *(f"score_{head}" for head in heads)], pyarrow.float32())
        columns = [("uid", pyarrow.string()), *((name, pyarrow.list_(one)) for name, one in lists.items())]
        schema = pyarrow.schema(columns)
        with writing(path) as out, parquet.ParquetWriter(out, schema) as writer:

            def write(rows: Sequence[Found]) -> None:
                writer.write_table(pyarrow.Table.from_pylist([_lists(row, "score_") for row in rows], schema))

            yield write
    elif kind in ("csv", "tsv"):
        with writing(path) as out:
            yield _delimited(out, path, "," if kind == "csv" else "\t", heads)
    elif kind == "jsonl":
        with writing(path) as out:
            yield lambda rows: out.writelines(_line(row, path) for row in rows)
    else:
        raise SettingError(f"predictions are not written as {kind}", remedy="choose jsonl, csv, tsv or parquet")


def _lists(row: Found, prefix: str) -> dict[str, Any]:
    return {
        "uid": row.uid,
        "labels": [one.id for one in row.labels],
        "label_uids": [one.uid for one in row.labels],
        "label_texts": [one.text for one in row.labels],
        "scores": [one.score for one in row.labels],
        **{f"{prefix}{head}": values for head, values in row.heads.items()},
    }


def _line(row: Found, path: Path) -> bytes:
    found = _lists(replace(row, heads={}), "")
    try:
        return orjson.dumps(found | ({"heads": row.heads} if row.heads else {}), option=orjson.OPT_APPEND_NEWLINE)
    except orjson.JSONEncodeError as error:
        raise DataError(f"row {row.uid!r:.60} cannot be written ({error})", path=path) from error


def _delimited(out: IO[bytes], path: Path, delimiter: str, heads: Sequence[str]) -> Callable[[Sequence[Found]], None]:
    from megalabel.data.formats._delimited import quote_row

    names = ["uid", "rank", "label", "label_uid", "label_text", "score", *(f"score_{head}" for head in heads)]
    out.write(quote_row(names, delimiter, path))

    def write(rows: Sequence[Found]) -> None:
        for row in rows:
            for place, one in enumerate(row.labels):
                own = [f"{row.heads[head][place]:.6g}" for head in heads]
                cells = [row.uid, str(place + 1), str(one.id), one.uid, one.text, f"{one.score:.6g}", *own]
                out.write(quote_row(cells, delimiter, path))

    return write


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise MissingExtraError("pyarrow", extra="parquet", what="writing Parquet") from error
    return pyarrow, parquet
