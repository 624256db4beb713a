"""Shared by CSV, TSV, Parquet and data frames: from columns to a data set and back."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from megalabel.data.dataset import Dataset, Labels, Split
from megalabel.data.formats import Options
from megalabel.data.formats._cells import (
    Cell,
    Splitter,
    is_missing,
    name_labels,
    parent_uids,
    parse_cell,
    parse_weights,
    resolve,
)
from megalabel.data.formats._clean import Findings, Row
from megalabel.data.formats._rows import PARTS, RowCollector
from megalabel.data.formats._separator import GUESSED, AmbiguousError, split_items
from megalabel.data.formats._vocabulary import Term, TextParts, make_labels
from megalabel.data.formats.folder import assemble, make_split
from megalabel.data.problems import MISSING
from megalabel.data.texts import TextWriter, take_texts
from megalabel.errors import DataError
from megalabel.files import find, need

__all__ = ["Points", "Table", "build_splits", "collect", "label_rows", "point_rows", "read_label_table", "read_tables"]

TEXT = ("text", "title", "query", "sentence", "content", "document", "question", "description", "body", "abstract")
LABELS = ("labels", "label", "tags", "tag", "categories", "category", "targets", "target", "classes", "class", "topics")
UID = ("uid", "id", "_id", "guid")
PARENT = ("parent", "parents", "broader")
KNOWN = {*TEXT, *LABELS, *UID, "weights", "split", "name"}

_PLAIN = Options()
NAMES = {
    "train": ("train", "trn", "training"),
    "val": ("val", "valid", "validation", "dev"),
    "test": ("test", "tst", "testing"),
}
LABEL_NAMES = ("labels", "label", "lbl")
SPLITS = {name: split for split, names in NAMES.items() for name in names}


@dataclass(frozen=True)
class Table:
    """Any table: where it is (for messages), its columns, and its rows as (line, cells of the columns asked for)."""

    path: Path | str
    columns: Sequence[str]
    rows: Callable[[Sequence[str]], Iterator[tuple[int, Sequence[Any]]]]

    def guess(self, names: Sequence[str], taken: Sequence[str | None] = ()) -> str | None:
        """Return the first column called one of ``names``, in any case, that is not taken."""
        columns = {column.strip().lower(): column for column in reversed(self.columns) if column not in taken}
        return next((columns[name] for name in names if name in columns), None)

    def column(self, given: str | None, names: Sequence[str], what: str, taken: Sequence[str | None] = ()) -> str:
        """Return the given or guessed column; if it does not exist, the error lists the columns."""
        name = self.guess(names, taken) if given is None else given
        if name is None or name not in self.columns:
            missing = f"no {what} column" if given is None else f"no column {given!r}"
            remedy = f"name it with --{what}-column ({what}_column= in Python)"
            raise DataError(f"{missing} among: {', '.join(self.columns)}", path=self.path, remedy=remedy)
        return name


class Points:
    """The rows of one split as read from the table, before the label set is known."""

    def __init__(self, path: Path | str) -> None:
        self.path = path
        self.lines = array("q")
        self._texts, self._uids = TextWriter(), TextWriter()
        self.cells: list[Cell] = []
        self.weights: list[Any] = []
        self.names: dict[str | int, str | int] = {}

    def add(self, line: int, text: str, uid: str) -> None:
        """Add a row."""
        self.lines.append(line)
        self._texts.append(text)
        self._uids.append(uid)

    @cached_property
    def texts(self) -> Sequence[str]:
        """The texts of all rows, once all are added."""
        return self._texts.finish()

    @cached_property
    def uids(self) -> Sequence[str]:
        """The uids of all rows, once all are added."""
        return self._uids.finish()

    def add_cell(self, value: Any) -> None:
        """Add a cell of the labels column; a label that occurs in many lists is kept once."""
        cell = parse_cell(value)
        self.cells.append(cell if isinstance(cell, str) else tuple(self.names.setdefault(t, t) for t in cell))


def collect(table: Table, options: Options, split: str | None) -> dict[str, Points]:
    """Read the rows of a table; with split None its ``split`` column, if any, says where each row belongs."""
    given = (options.text_column, options.labels_column, options.uid_column)
    text = table.column(options.text_column, TEXT, "text", given)
    labels = table.column(options.labels_column, LABELS, "labels", (*given, text))
    uid = table.guess(UID, given) if options.uid_column is None else table.column(options.uid_column, (), "uid")
    weights = table.guess(["weights"])
    by = table.guess(["split"]) if split is None else None
    columns = [name for name in (text, labels, uid, weights, by) if name is not None]
    places = {name: columns.index(name) for name in columns}
    uids = "" if uid is None else f", uids from {uid!r}"
    options.say(f"{table.path}: text from the column {text!r}, labels from {labels!r}{uids}")
    parts: dict[str, Points] = {}
    for line, cells in table.rows(columns):
        part = _split_name(table.path, line, cells[places[by]]) if by is not None else split or options.rows
        points = parts.setdefault(part, Points(table.path))
        words = text_cell(table.path, line, text, cells[places[text]])
        if uid is None:
            number = len(points.lines)  # a row of a table of test rows has the uid that `predict` gives it
            own = str(number) if options.rows == "test" and by is None else f"{PARTS[part]}-{number}"
        else:
            own = text_cell(table.path, line, uid, cells[places[uid]])
        points.add(line, words, own)
        try:
            points.add_cell(cells[places[labels]])
        except ValueError as error:
            raise DataError(str(error), path=table.path, line=line) from None
        if weights is not None:
            points.weights.append(cells[places[weights]])
    if not parts:
        raise DataError("there are no rows below the header", path=table.path)
    return parts


def read_label_table(table: Table, options: Options = _PLAIN) -> Labels:
    """Read uid and text of each label; a missing uid is the text (where texts differ), a missing text the uid.

    A ``parent`` column holds the uid or the text of the next broader label, or of several.
    """
    uid = table.guess(UID)
    text = table.guess((*TEXT, "name", *LABELS))
    if uid is None and text is not None:
        uid = table.guess(("label", "name", "code"), (text,))
    parent = table.guess(PARENT, (uid, text))
    others = [column for column in table.columns if column not in (uid, parent)]
    if text is None and len(others) == 2 and uid is None:
        uid, text = others
    elif text is None and len(others) < 2:
        text = others[0] if others else uid
    if text is None:
        raise DataError(f"no text column among: {', '.join(table.columns)}", path=table.path)
    columns = [column for column in (text, uid, parent) if column is not None]
    lines: list[int] = []
    rows: list[list[str]] = []
    cells: list[Cell] = []
    for line, values in table.rows(columns):
        lines.append(line)
        given = columns if parent is None else columns[:-1]
        rows.append([text_cell(table.path, line, column, cell) for column, cell in zip(given, values, strict=False)])
        cells.append("" if parent is None else parse_cell(values[-1]))
    texts = [row[0] for row in rows]
    uids = [row[-1] for row in rows]
    if uid is None and len(set(texts)) < len(texts):
        uids = [f"lbl-{i}" for i in range(len(texts))]
    above = parent_uids(cells, Labels(texts, uids))
    found = zip(uids, texts, lines, above, strict=True)
    terms = [Term(name, label, line, parents=parents) for name, label, line, parents in found]
    return make_labels(terms, TextParts.parse(options.label_text), table.path)


def build_splits(
    parts: dict[str, Points],
    labels: Labels | None,
    label_path: Path | str | None,
    options: Options,
    choose: bool = False,
    unit: str = "line",
) -> tuple[dict[str, Split], Labels]:
    """Turn collected rows into splits over one label set, the given one or the one the rows name.

    ``options.say`` receives a line on what separates the labels of a cell, and one for each kind of odd rows.
    With ``choose``, rows without text or label are left out, and rows with the same text are merged. ``unit`` is what
    the lines of the rows count.
    """
    cells = [cell for points in parts.values() for cell in points.cells]
    look_up: Callable[[str], int | None]
    skip = MISSING if labels is None else frozenset()
    if labels is None:
        try:
            splitter, labels = name_labels(cells, options.separator, _names(options.known), skip)
        except AmbiguousError as error:
            raise _ambiguous(error, parts) from None
        look_up = {uid: i for i, uid in enumerate(labels.uids)}.get
    else:
        splitter, look_up = resolve(cells, labels, options.separator)
    _report_separator(splitter, cells, options.say)
    splits = {}
    findings = Findings(options.strict, choose, unit)
    missing: dict[str, None] = {}
    for name, points in parts.items():
        found = []
        for i, (line, cell) in enumerate(zip(points.lines, points.cells, strict=True)):
            tokens = splitter.tokens(cell)
            weights = parse_weights(points.weights[i], splitter) if points.weights else None
            gone = [str(token) for token in tokens if str(token).casefold() in skip]
            if gone:
                findings.add("missing", points.path, line, repr(gone[0]))
                missing |= dict.fromkeys(gone)
                tokens, weights = _kept(tokens, weights, [str(token) not in gone for token in tokens])
            ids = _ids(tokens, look_up, points.path, line, label_path)
            if len(set(ids)) < len(ids):
                first = [label not in ids[:place] for place, label in enumerate(ids)]
                findings.add("label", points.path, line, f"{tokens[first.index(False)]!r:.60}")
                ids, weights = _kept(ids, weights, first)
            found.append(Row(i, line, ids, weights))
        collector = RowCollector(points.path, max(len(labels), 1))
        chosen = findings.chosen(points.path, found, points.texts)
        for row in chosen:
            collector.add(row.line, row.ids, row.weights)
        places = np.array([row.place for row in chosen], dtype=np.int64)
        texts, uids = take_texts(points.texts, places), take_texts(points.uids, places)
        splits[name] = make_split(points.path, texts, uids, collector.matrix())
    if choose and skip:
        splits, labels = _used(splits, labels)
    path = next(iter(parts.values())).path
    findings.report(path if len(parts) == 1 else _folder(path), splits, labels, list(missing), options.say)
    return splits, labels


def _used(splits: dict[str, Split], labels: Labels) -> tuple[dict[str, Split], Labels]:
    """Return the splits over the labels that some row has."""
    used = np.unique(np.concatenate([split.targets.indices for split in splits.values()]))
    if len(used) == len(labels):
        return splits, labels
    names = [labels.texts[label] for label in used.tolist()]
    return {name: replace(split, targets=split.targets[:, used]) for name, split in splits.items()}, Labels(
        names, names
    )


def _kept(values: Sequence[Any], weights: Any, keep: Sequence[bool]) -> tuple[list[Any], Any]:
    """Return the values to keep, with their weights if there are as many."""
    if isinstance(weights, list) and len(weights) == len(keep):
        weights = [weight for weight, wanted in zip(weights, keep, strict=True) if wanted]
    return [value for value, wanted in zip(values, keep, strict=True) if wanted], weights


def _folder(path: Path | str) -> Path | str:
    """Return where tables are together: their folder, or what the only one is called."""
    return path.parent if isinstance(path, Path) else path


def _names(labels: Labels | None) -> set[str]:
    return set() if labels is None else {*labels.uids, *labels.texts}


def _report_separator(splitter: Splitter, cells: Sequence[Cell], say: Callable[[str], None]) -> None:
    texts = {cell for cell in cells if isinstance(cell, str) and cell}
    marks = [mark for mark in GUESSED if any(mark in text for text in texts)]
    if splitter.separator is not None and any(splitter.separator in text for text in texts):
        say(f"labels are separated by {splitter.separator!r}")
    elif not marks and texts:
        say("every row has one label")
    elif marks:
        verb = "belongs" if len(marks) == 1 else "belong"
        say(f"every row has one label; {' and '.join(map(repr, marks))} {verb} to names")


def _ambiguous(error: AmbiguousError, parts: dict[str, Points]) -> DataError:
    """Return the error that asks for the separator, with a row as an example."""
    path, line = next(
        (points.path, line)
        for points in parts.values()
        for line, cell in zip(points.lines, points.cells, strict=True)
        if cell == error.example
    )
    shown = [f"--separator '{mark}' for {split_items(error.example, mark)!r:.120}" for mark in error.marks]
    what = f"it is not clear what separates the labels, {' or '.join(map(repr, error.marks))} or nothing"
    remedy = f"say it: {', '.join(shown)}, or --separator '' for one label a row (separator= in Python)"
    return DataError(what, path=path, line=line, remedy=remedy)


def read_tables(path: Path, options: Options, ending: str, open_table: Callable[[Path], Table]) -> Dataset:
    """Read one file, or a folder with train, test, val and labels tables that end in ``ending``."""
    from megalabel.data.formats._label_file import read_label_file  # which opens tables

    label_path = options.label_file
    if path.is_file():
        parts = collect(open_table(path), options, None)
        if "train" not in parts and options.rows == "train":
            raise DataError("no row of this file is a train row", path=path)
        if options.rows == "test" and "test" not in parts:
            raise DataError("no row of this file is a test row", path=path)
        if "test" not in parts and options.test_share is None:
            options = replace(options, test_share=0.1)  # one file has no other place for test rows
    else:
        sources = {split: find(path, *(f"{name}{ending}" for name in names)) for split, names in NAMES.items()}
        sources["train"] = need(path, *(f"{name}{ending}" for name in NAMES["train"]))
        label_path = label_path or find(path, *(f"{name}{ending}" for name in LABEL_NAMES))
        parts = {}
        for split, source in sources.items():
            if source is not None:
                parts |= collect(open_table(source), options, split)
    labels = None if label_path is None else read_label_file(label_path, options)
    splits, labels = build_splits(parts, labels, label_path, options, path.is_file() and options.rows == "train")
    return assemble(path, splits, labels, options)


def point_rows(split: Split, label_uids: Sequence[str]) -> Iterator[tuple[str, str, list[str], list[float]]]:
    """Yield (uid, text, label uids, weights) of every point."""
    indptr, indices, values = split.targets.indptr, split.targets.indices, split.targets.data
    for i, (uid, text) in enumerate(zip(split.uids, split.texts, strict=True)):
        part = slice(indptr[i], indptr[i + 1])
        yield uid, text, [label_uids[label] for label in indices[part].tolist()], values[part].tolist()


def label_rows(labels: Labels) -> Iterator[tuple[str, str]]:
    """Yield (uid, text) of every label."""
    return zip(labels.uids, labels.texts, strict=True)


def has_weights(split: Split) -> bool:
    """Return whether any relevance differs from 1."""
    return bool(np.any(split.targets.data != 1.0))


def text_cell(path: Path | str, line: int, column: str, value: Any) -> str:
    """Return the text of a cell; an integer becomes its digits."""
    if isinstance(value, str):
        return value
    if type(value) is int:
        return str(value)
    if is_missing(value):
        raise DataError(f"the {column} of this row is missing", path=path, line=line, remedy="fill in '' or drop it")
    raise DataError(f"{column} must be a text, not {value!r:.60}", path=path, line=line)


def _ids(
    tokens: Sequence[str | int],
    look_up: Callable[[str], int | None],
    path: Path | str,
    line: int,
    label_path: Path | str | None,
) -> list[int]:
    ids = []
    for token in tokens:
        label = look_up(str(token))
        if label is None:
            where = f" ({label_path})" if label_path is not None else ""
            remedy = "add it there, or name the separator with --separator"
            raise DataError(
                f"label {token!r:.60} is not in the label table{where}", path=path, line=line, remedy=remedy
            )
        ids.append(label)
    return ids


def _split_name(path: Path | str, line: int, value: Any) -> str:
    name = SPLITS.get(str(value).strip().lower())
    if name is None:
        raise DataError(f"split {value!r} is none of train, val and test", path=path, line=line)
    return name
