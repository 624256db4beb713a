"""Data sets from and to the tables of pandas, polars and Hugging Face datasets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import Any, Literal

from megalabel.data.dataset import Dataset, Labels
from megalabel.data.formats import Options
from megalabel.data.formats._tables import (
    LABELS,
    SPLITS,
    Points,
    Table,
    build_splits,
    collect,
    has_weights,
    point_rows,
    read_label_table,
)
from megalabel.data.formats.folder import make_dataset
from megalabel.errors import DataError, SettingError, nearest

__all__ = ["from_frames", "to_frames"]

KINDS = ("pandas", "polars", "datasets")


def from_frames(
    train: Any,
    test: Any = None,
    val: Any = None,
    labels: Any = None,
    *,
    text_column: str | None = None,
    labels_column: str | None = None,
    uid_column: str | None = None,
    separator: str | None = None,
    name: str = "data",
    test_share: float = 0.1,
    seed: int = 0,
) -> Dataset:
    """Build a data set from pandas or polars frames or Hugging Face datasets, one row per point.

    Columns that are not given are guessed by name. The labels column holds lists of
    labels (uids, texts, or numbers that count the rows of ``labels``), or texts with a
    separator between labels: ``separator``, or the one that the rows show. ``labels`` is a
    frame with uid and text of each label, or a list of label texts; without it the column
    itself names the labels. A
    ``weights`` column holds as many weights in (0, 1]. A DatasetDict as the first argument
    brings train, validation and test itself; one frame with a ``split`` column may do the
    same. Without test rows, ``test_share`` of train is held out.

    >>> import pandas as pd
    >>> frame = pd.DataFrame({"text": ["a b", "b c", "c d"], "tags": ["x|y", "x", "y|x"]})
    >>> data = from_frames(frame, frame)
    >>> data.labels.texts, data.test.targets.toarray().tolist()
    (['x', 'y'], [[1.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    """
    options = Options(text_column, labels_column, uid_column, separator, test_share=test_share, seed=seed)
    frames: dict[str, Any] = {"train": train, "val": val, "test": test}
    if isinstance(train, Mapping):
        frames = {SPLITS.get(str(key).lower(), str(key)): frame for key, frame in train.items()}
        odd = next((key for key in frames if key not in {"train", "val", "test"}), None)
        if odd is not None:
            raise DataError(f"split {odd!r} is none of train, validation and test", remedy="drop or rename it")
    tables = {split: _table(frame, f"the {split} frame") for split, frame in frames.items() if frame is not None}
    parts: dict[str, Points] = {}
    for split, table in tables.items():
        parts |= collect(table, options, None if len(tables) == 1 else split)
    if labels is None:
        first = next(iter(tables.values()))
        names = _class_names(frames[next(iter(tables))], labels_column or first.guess(LABELS))
        label_set = None if names is None else _labels(names)
    else:
        label_set = _labels(labels)
    splits, label_set = build_splits(parts, label_set, None, options)
    return make_dataset(splits, label_set, {"name": name}, options)


def to_frames(data: Dataset, kind: Literal["pandas", "polars", "datasets"] = "pandas") -> dict[str, Any]:
    """Return train, test, val (if any) and labels as frames that :func:`from_frames` reads back.

    Points have uid, text, labels (a list of label uids) and, where some relevance is not
    1, weights; labels have uid and text. Name, filter pairs and propensity constants have
    no place in a frame.

    >>> from megalabel import Dataset
    >>> data = Dataset.from_lists([("a b", [0]), ("c", [1])], [("a", [0])], ["first", "second"])
    >>> to_frames(data)["train"].to_dict("list")
    {'uid': ['trn-0', 'trn-1'], 'text': ['a b', 'c'], 'labels': [['lbl-0'], ['lbl-1']]}
    """
    if kind not in KINDS:
        raise SettingError(f"unknown kind {kind!r}", remedy=nearest(kind, KINDS))
    frames = {}
    for name, split in data.splits.items():
        rows = point_rows(split, data.labels.uids)
        columns = dict(zip(("uid", "text", "labels", "weights"), map(list, zip(*rows, strict=True)), strict=True))
        if not has_weights(split):
            del columns["weights"]
        frames[name] = _frame(kind, columns)
    return frames | {"labels": _frame(kind, {"uid": list(data.labels.uids), "text": list(data.labels.texts)})}


def _table(frame: Any, what: str) -> Table:
    """View a frame as a table; its lines are rows, counted from 1."""
    if hasattr(frame, "column_names"):  # datasets
        return Table(what, list(frame.column_names), partial(_rows, frame.with_format(None)))
    if hasattr(frame, "columns") and hasattr(frame, "__getitem__"):
        return Table(what, [column for column in frame.columns if isinstance(column, str)], partial(_rows, frame))
    kind = type(frame).__name__
    raise DataError(f"{what} is a {kind}", remedy="give a pandas or polars DataFrame or a Hugging Face Dataset")


def _rows(frame: Any, columns: Sequence[str]) -> Iterator[tuple[int, Sequence[Any]]]:
    lists = []
    for column in columns:
        names = _class_names(frame, column)
        values = _values(frame[column])
        lists.append(values if names is None else [_named(value, names) for value in values])
    yield from enumerate(zip(*lists, strict=True), start=1)


def _values(column: Any) -> list[Any]:
    for name in ("to_list", "tolist"):
        if hasattr(column, name):
            values: list[Any] = getattr(column, name)()
            return values
    return list(column)


def _labels(labels: Any) -> Labels:
    if isinstance(labels, list | tuple) and all(isinstance(text, str) for text in labels):
        return read_label_table(Table("labels", ["text"], lambda _: ((i + 1, [t]) for i, t in enumerate(labels))))
    return read_label_table(_table(labels, "the labels frame"))


def _class_names(frame: Any, column: str | None) -> list[str] | None:
    """Return the names that a Hugging Face dataset keeps beside the numbers of a column, if it does."""
    feature = getattr(frame, "features", {}).get(column)
    names: list[str] | None = getattr(getattr(feature, "feature", feature), "names", None)
    return names


def _named(value: Any, names: list[str]) -> Any:
    """Turn class numbers into names; -1 means an unknown class."""
    if isinstance(value, list):
        return [names[i] for i in value]
    return None if value in (None, -1) else names[value]


def _frame(kind: str, columns: dict[str, list[Any]]) -> Any:
    try:
        package = import_module(kind)
    except ImportError as error:
        raise SettingError(f"{kind} is not installed", remedy=f"pip install {kind}") from error
    if kind == "datasets":
        return package.Dataset.from_dict(columns)
    if kind == "pandas":
        return package.DataFrame(columns)
    types = {"labels": package.List(package.String), "weights": package.List(package.Float32)}
    return package.DataFrame(columns, schema={name: types.get(name, package.String) for name in columns})
