"""Predict the labels of a file: read its texts, predict them block by block on one or several ranks, write the results.

Files are streamed in and out, so memory does not grow with their size.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import orjson
import torch

from megalabel.errors import DataError, MissingExtraError, SettingError, nearest
from megalabel.files import decode, json_rows, read_lines, writing
from megalabel.model.cut import make_cut
from megalabel.model.ensemble import Ensemble
from megalabel.model.prediction import PredictedRow, Prediction, named_parents

if TYPE_CHECKING:
    from megalabel.model.model import Model
    from megalabel.ranks import Ranks

__all__ = [
    "FORMATS",
    "file_format",
    "predict_ranks",
    "predict_stream",
    "read_texts",
    "write_predictions",
]

FORMATS = ("text", "jsonl", "csv", "tsv", "parquet")
BLOCK = 1024  # texts in a block
CELLS = 1 << 22  # predictions in a block
_SUFFIXES = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
}


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
    """Yield (uid, text) of every row, as a stream; rows without a uid get their number, from 0.

    Args:
        path: one text per line, JSON lines, or a CSV, TSV or Parquet table; gzip is fine.
        format: one of :data:`FORMATS`; detected from the file name by default.
        column: the column or key with the text. By default ``text`` in JSON lines; in tables ``text``,
            ``title`` and similar names are detected.
    """
    kind = file_format(path, format)
    if kind == "text":
        for number, line in read_lines(path):
            yield str(number - 1), decode(line, path, number).removesuffix("\r")
    elif kind == "jsonl":
        key = column or "text"
        for row_number, (number, row) in enumerate(json_rows(path)):
            text = row.get(key)
            if not isinstance(text, str):
                raise DataError(f'row without a text under "{key}"', path=path, line=number)
            yield str(row.get("uid", row_number)), text
    else:
        yield from _read_table(path, kind, column)


def _read_table(path: Path, kind: str, column: str | None) -> Iterator[tuple[str, str]]:
    from megalabel.data.formats._tables import TEXT, UID

    if kind == "parquet":
        from megalabel.data.formats.parquet import open_parquet

        table = open_parquet(path)
    else:
        from megalabel.data.formats._delimited import open_delimited

        table = open_delimited(path, "\t" if kind == "tsv" else ",")
    text_column = table.column(column, TEXT, "text")
    uid_column = table.guess(UID, [text_column])
    columns = [text_column] if uid_column is None else [text_column, uid_column]
    for row_number, (number, cells) in enumerate(table.rows(columns)):
        if not isinstance(cells[0], str):
            raise DataError(f"row without a text in the column {text_column!r}", path=path, line=number)
        yield str(row_number) if uid_column is None else str(cells[1]), cells[0]


def predict_stream(
    model: Model | Ensemble,
    texts: Iterable[tuple[str, str]],
    k: int | None = None,
    *,
    goal: str | None = None,
    precision: float | None = None,
    heads: str = "all",
    min_score: float | None = None,
    head_scores: bool = False,
) -> Iterator[list[PredictedRow]]:
    """Yield the predictions of (uid, text) pairs in blocks; a block is read only when it is needed.

    Args:
        model: a trained model, or an ensemble.
        texts: pairs, as from :func:`read_texts`.
        k: labels per text; by default those above the threshold of the model, as in :meth:`Model.predict`.
        goal: without k, what the threshold is chosen for.
        precision: without k, a precision that the threshold is chosen for.
        heads: ``all``, or the name of one head.
        min_score: drop labels with a lower score; without k, the threshold itself. Scores of a fused model are
            probabilities.
        head_scores: also return the scores by every head; not for an ensemble.
    """
    cut = make_cut(model, k, goal=goal, precision=precision, min_score=min_score, heads=heads)
    k = min(cut.k, len(model.labels))
    source = iter(texts)
    while block := list(islice(source, max(1, min(BLOCK, CELLS // k)))):
        yield _predict_block(model, block, k, heads, cut.least, head_scores)


def _predict_block(
    model: Model | Ensemble,
    block: Sequence[tuple[str, str]],
    k: int,
    heads: str,
    min_score: float | None,
    head_scores: bool,
) -> list[PredictedRow]:
    texts, labels = [text for _, text in block], model.labels
    if head_scores:
        if isinstance(model, Ensemble):
            raise SettingError("scores of heads are for one run", remedy="predict without a second run")
        top, by_head = model.search_with_head_scores(texts, k, heads=heads)
    else:
        top, by_head = model.search(texts, k, heads=heads), {}
    keep = top.ids >= 0
    if min_score is not None:
        keep &= top.scores >= min_score
    rows = []
    for row, (uid, text) in enumerate(block):
        columns = np.flatnonzero(keep[row])
        ids, scores = top.ids[row, columns].tolist(), top.scores[row, columns].tolist()
        best = [
            Prediction(label, labels.uids[label], labels.texts[label], score, named_parents(labels, label))
            for label, score in zip(ids, scores, strict=True)
        ]
        rows.append(
            PredictedRow(uid, text, best, {name: values[row, columns].tolist() for name, values in by_head.items()})
        )
    return rows


def predict_ranks(
    model: Model | Ensemble, texts: Iterable[tuple[str, str]], ranks: Ranks, k: int | None = None, **options: Any
) -> Iterator[list[PredictedRow]]:
    """Yield the blocks of :func:`predict_stream`, in order, on rank 0; other ranks yield nothing.

    Every rank holds the whole model and reads the same texts. Each predicts one of ``world`` blocks, and
    rank 0 gathers them. All ranks must consume the iterator to its end.
    """
    source = iter(texts)
    while blocks := list(islice(source, BLOCK * ranks.world)):
        block = blocks[BLOCK * ranks.rank : BLOCK * (ranks.rank + 1)]
        rows = [asdict(row) for part in predict_stream(model, block, k, **options) for row in part]
        packed = np.frombuffer(json.dumps(rows).encode(), dtype=np.uint8).copy()
        for part in _gather_bytes(packed, ranks):
            yield [
                PredictedRow(**{**row, "labels": [_prediction(label) for label in row["labels"]]})
                for row in json.loads(part)
            ]


def _prediction(label: dict[str, Any]) -> Prediction:
    """Return a prediction that went through JSON."""
    return Prediction(**{**label, "parents": tuple((uid, name) for uid, name in label["parents"])})


def _gather_bytes(packed: np.ndarray[Any, np.dtype[np.uint8]], ranks: Ranks) -> list[bytes]:
    """Return the bytes of every rank, in order, on rank 0; an empty list on other ranks."""
    sizes = ranks.gather(torch.tensor([len(packed)]), [1] * ranks.world).tolist()
    gathered = ranks.gather(torch.from_numpy(packed), sizes).numpy()
    return [part.tobytes() for part in np.split(gathered, np.cumsum(sizes)[:-1])] if ranks.first else []


@contextmanager
def write_predictions(
    path: Path, format: str, heads: Sequence[str]
) -> Iterator[Callable[[Sequence[PredictedRow]], None]]:
    """Provide a function that appends rows; the file appears under its name only once it is complete.

    ``jsonl``: one object per text, as ``megalabel evaluate --predictions`` reads it. ``csv`` and
    ``tsv``: one row per label of a text. ``parquet``: one row per text, with lists. ``heads`` names the
    heads whose scores the rows hold.
    """
    if format == "parquet":
        pyarrow, parquet = _pyarrow()
        lists = {"labels": pyarrow.int64(), "label_uids": pyarrow.string(), "label_texts": pyarrow.string()}
        lists |= dict.fromkeys(["scores", *(f"score_{head}" for head in heads)], pyarrow.float32())
        columns = [("uid", pyarrow.string()), *((name, pyarrow.list_(item)) for name, item in lists.items())]
        schema = pyarrow.schema(columns)
        with writing(path) as out, parquet.ParquetWriter(out, schema) as writer:

            def write(rows: Sequence[PredictedRow]) -> None:
                writer.write_table(pyarrow.Table.from_pylist([_as_lists(row) for row in rows], schema))

            yield write
    elif format in ("csv", "tsv"):
        with writing(path) as out:
            yield _delimited_writer(out, path, "," if format == "csv" else "\t", heads)
    elif format == "jsonl":
        with writing(path) as out:
            yield lambda rows: out.writelines(_json_line(row, path) for row in rows)
    else:
        raise SettingError(f"cannot write predictions as {format}", remedy="choose jsonl, csv, tsv or parquet")


def _as_lists(row: PredictedRow) -> dict[str, Any]:
    return {
        "uid": row.uid,
        "labels": [label.id for label in row.labels],
        "label_uids": [label.uid for label in row.labels],
        "label_texts": [label.text for label in row.labels],
        "scores": [label.score for label in row.labels],
        **{f"score_{head}": values for head, values in row.heads.items()},
    }


def _json_line(row: PredictedRow, path: Path) -> bytes:
    document = _as_lists(replace(row, heads={})) | ({"heads": row.heads} if row.heads else {})
    try:
        return orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE)
    except orjson.JSONEncodeError as error:
        raise DataError(f"cannot write row {row.uid!r:.60} ({error})", path=path) from error


def _delimited_writer(
    out: IO[bytes], path: Path, delimiter: str, heads: Sequence[str]
) -> Callable[[Sequence[PredictedRow]], None]:
    from megalabel.data.formats._delimited import quote_row

    names = ["uid", "rank", "label", "label_uid", "label_text", "score", *(f"score_{head}" for head in heads)]
    out.write(quote_row(names, delimiter, path))

    def write(rows: Sequence[PredictedRow]) -> None:
        for row in rows:
            for place, label in enumerate(row.labels):
                by_head = [f"{row.heads[head][place]:.6g}" for head in heads]
                cells = [row.uid, str(place + 1), str(label.id), label.uid, label.text, f"{label.score:.6g}", *by_head]
                out.write(quote_row(cells, delimiter, path))

    return write


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise MissingExtraError("pyarrow", extra="parquet", what="writing Parquet") from error
    return pyarrow, parquet
