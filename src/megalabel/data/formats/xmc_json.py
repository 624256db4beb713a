"""The JSON files of the extreme classification repository.

``trn.json.gz``, ``tst.json.gz`` (optional ``val.json.gz``) hold ``{"uid", "title",
"content", "target_ind": [ints], "target_rel": [weights]}`` per line, ``lbl.json.gz``
``{"uid", "title", "content"}``; uid, content and target_rel may be missing. The text of a
point or label is its title in the "Titles" sets and title and content otherwise; the
option ``fields`` decides otherwise. Filter files hold ``row label`` pairs and are called
``filter_labels_train.txt`` or ``trn_filter_labels.txt``.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from megalabel.data.dataset import Dataset, Labels, Split
from megalabel.data.formats import Options
from megalabel.data.formats._rows import PARTS, LabelCollector, RowCollector
from megalabel.data.formats._sniff import first_json
from megalabel.data.formats.folder import assemble, dump, make_split, rows_of, string, write_card, write_filters
from megalabel.data.texts import TextWriter
from megalabel.errors import DataError, SettingError, nearest
from megalabel.files import find, json_rows, need, writing
from megalabel.progress import track

__all__ = ["looks_like", "read", "write"]

FIELDS = ("title", "title+content")

TextOf = Callable[[dict[str, Any], Path, int], str]


def looks_like(path: Path) -> str | None:
    """Detect the folder by trn.json with target_ind in its first line."""
    train = find(path, "trn.json") if path.is_dir() else None
    if train is None or (not find(path, "lbl.json") and "target_ind" not in first_json(train)):
        return None
    return f"it holds {train.name}" + (" with target_ind" if "target_ind" in first_json(train) else " and lbl.json")


def read(path: Path, options: Options) -> Dataset:
    """Read the folder; any error in it is one DataError with file and line."""
    fields = options.fields or ("title" if "titles" in path.resolve().name.lower() else "title+content")
    if fields not in FIELDS:
        raise SettingError(f"unknown fields {fields!r}", remedy=nearest(fields, FIELDS))
    text_of = _title if fields == "title" else _title_content
    sources = {name: find(path, f"{stem}.json") for name, stem in PARTS.items()}
    sources["train"] = need(path, "trn.json")
    labels = _read_labels(need(path, "lbl.json"), text_of)
    splits = {
        name: _read_split(source, len(labels), text_of, PARTS[name])
        for name, source in sources.items()
        if source is not None
    }
    return assemble(path, splits, labels, options)


def write(data: Dataset, folder: Path) -> None:
    """Write the set into an empty folder; the text goes into title."""
    path = folder / "lbl.json.gz"
    with writing(path) as out:
        for uid, text in zip(data.labels.uids, data.labels.texts, strict=True):
            out.write(dump({"uid": uid, "title": text, "content": ""}, path))
    for name, split in data.splits.items():
        path = folder / f"{PARTS[name]}.json.gz"
        with writing(path) as out:
            for row in track(rows_of(split), f"writing {path.name}", total=len(split)):
                point = {"uid": row["uid"], "title": row["text"], "content": "", "target_ind": row["labels"]}
                out.write(dump(point | {"target_rel": row.get("weights", [1.0] * len(row["labels"]))}, path))
    write_filters(data, folder, "filter_labels_{split}.txt")
    write_card(data, folder)


def _read_labels(path: Path, text_of: TextOf) -> Labels:
    collector = LabelCollector(path)
    for line, row in json_rows(path):
        collector.add(line, _uid(row, path, line, f"lbl-{len(collector)}"), text_of(row, path, line))
    return collector.labels()


def _read_split(path: Path, labels: int, text_of: TextOf, prefix: str) -> Split:
    texts, uids = TextWriter(), TextWriter()
    rows = RowCollector(path, labels)
    for line, row in json_rows(path):
        uids.append(_uid(row, path, line, f"{prefix}-{len(uids)}"))
        texts.append(text_of(row, path, line))
        if "target_ind" not in row:
            raise DataError('the key "target_ind" is missing', path=path, line=line)
        rows.add(line, row["target_ind"], row.get("target_rel"))
    return make_split(path, texts.finish(), uids.finish(), rows.matrix())


def _uid(row: dict[str, Any], path: Path, line: int, generated: str) -> str:
    return string(row, "uid", path, line) if "uid" in row else generated


def _title(row: dict[str, Any], path: Path, line: int) -> str:
    return string(row, "title", path, line)


def _title_content(row: dict[str, Any], path: Path, line: int) -> str:
    content = string(row, "content", path, line) if row.get("content") is not None else ""
    if row.get("title") is None and content:
        return content
    title = string(row, "title", path, line)
    return f"{title} {content}" if title and content else title or content
