"""The folder format: JSON lines, plain or gzip, one object per point or label.

``trn.jsonl``, ``tst.jsonl`` and optional ``val.jsonl`` hold ``{"uid", "text", "labels":
[ints]}`` with optional ``"weights"``; ``lbl.jsonl`` holds ``{"uid", "text"}`` with optional
``"name"``, ``"notation"`` and ``"parents": [ints]``; optional
``filter_trn.txt`` (``_val``, ``_tst``) hold ``row label`` pairs; optional ``card.json``
holds name, about, licence, propensity constants, and the packages the set was made from
with their versions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from megalabel.data.concepts import CONCEPT_KEYS, read_concepts
from megalabel.data.dataset import Dataset, Labels, Split
from megalabel.data.formats import Options
from megalabel.data.formats._rows import PARTS, LabelCollector, RowCollector, read_filter, write_pairs
from megalabel.data.propensity_constants import checked_constants, propensity_constants
from megalabel.data.texts import TextWriter
from megalabel.documents import read_json
from megalabel.errors import DataError
from megalabel.files import find, json_rows, need, writing
from megalabel.progress import track

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

__all__ = ["looks_like", "read", "write"]


def looks_like(path: Path) -> str | None:
    """Detect the folder by its files; one may be missing; reading it then names it."""
    names = [name for name in ("trn.jsonl", "lbl.jsonl", "tst.jsonl") if path.is_dir() and find(path, name)]
    return f"it holds {' and '.join(names[:2])}" if len(names) >= 2 else None


def read(path: Path, options: Options) -> Dataset:
    """Read the folder; any error in it is one DataError with file and line."""
    labels = _read_labels(need(path, "lbl.jsonl"))
    sources = {name: find(path, f"{stem}.jsonl") for name, stem in PARTS.items()}
    sources["train"] = need(path, "trn.jsonl")
    splits = {name: _read_split(source, len(labels)) for name, source in sources.items() if source is not None}
    return assemble(path, splits, labels, options)


def assemble(path: Path, splits: dict[str, Split], labels: Labels, options: Options) -> Dataset:
    """Assemble the parts read from ``path``: filters, card, and a held-out test part if ``test_share`` is set."""
    name = path.resolve().name.removesuffix(".gz").rsplit(".", 1)[0] if path.is_file() else path.resolve().name
    card: dict[str, Any] = {"name": name}
    if path.is_dir():
        splits = {name: _with_filter(path, name, split, options) for name, split in splits.items()}
        card |= read_card(path / "card.json") if (path / "card.json").is_file() else {}
    try:
        return make_dataset(splits, labels, card, options)
    except DataError as error:
        error.path = path if error.path is None else error.path
        raise


def make_dataset(splits: dict[str, Split], labels: Labels, card: dict[str, Any], options: Options) -> Dataset:
    """Return the data set of these parts; if there is no test part and ``test_share`` is set, hold one out of train."""
    from megalabel.data.hold_out import hold_out

    card = {"propensity": propensity_constants(card["name"])} | card
    train, val, test = (splits.get(name) for name in PARTS)
    if train is None and test is not None and options.rows == "test":
        train = test.rows(np.empty(0, dtype=np.int64))
    if train is None:
        raise DataError("this set has no train rows")
    if test is not None:
        return Dataset(train=train, val=val, test=test, labels=labels, **card, test_only=not len(train))
    if options.test_share is None:
        raise DataError("this set has no test rows", remedy="add them, or give --test-share 0.1")
    whole = Dataset(train=train, val=val, test=train, labels=labels, **card)
    held = hold_out(whole, share=options.test_share, max_rows=len(train), seed=options.seed, into="test")
    options.say(f"{len(held.test):,} of {len(train):,} rows are held out as test rows")
    lost = len(train) - len(held.train) - len(held.test)
    if lost:
        options.say(f"{lost:,} rows are left without a label and dropped")
    return held


def _with_filter(folder: Path, name: str, split: Split, options: Options) -> Split:
    rows, labels = split.targets.shape
    split = replace(split, filter=read_filter(folder, name, rows, labels))
    both = split.filtered_relevant()
    if both:
        pairs = f"{both:,} of the {len(split.filter):,} {name} filter pairs"
        options.say(f"{pairs} are relevant as well and can never be right")
    return split


def read_card(path: Path) -> dict[str, Any]:
    """Read name, about, licence, propensity and sources from card.json."""
    card = read_json(path)
    details: dict[str, Any] = {key: card[key] for key in ("name", "about", "licence") if isinstance(card.get(key), str)}
    if "propensity" in card:
        pair = card["propensity"]
        if not (isinstance(pair, list) and len(pair) == 2 and all(type(x) in (int, float) for x in pair)):
            raise DataError("propensity must be two numbers [A, B]", path=path)
        details["propensity"] = checked_constants(*pair, path=path)
    if "sources" in card:
        sources = card["sources"]
        if not (isinstance(sources, dict) and all(isinstance(version, str) for version in sources.values())):
            raise DataError('sources must be {"package": "version"}', path=path)
        details["sources"] = sources
    return details


def write(data: Dataset, folder: Path) -> None:
    """Write the set into an empty folder, gzip-compressed."""
    with writing(folder / "lbl.jsonl.gz") as out:
        for label, (uid, text) in enumerate(zip(data.labels.uids, data.labels.texts, strict=True)):
            row = {"uid": uid, "text": text, **data.labels.concept(label).to_dict()}
            out.write(dump(row, folder / "lbl.jsonl.gz"))
    for name, split in data.splits.items():
        target = folder / f"{PARTS[name]}.jsonl.gz"
        with writing(target) as out:
            for row in track(rows_of(split), f"writing {target.name}", total=len(split)):
                out.write(dump(row, target))
    write_filters(data, folder)
    write_card(data, folder)


def write_filters(data: Dataset, folder: Path, name: str = "filter_{stem}.txt.gz") -> None:
    """Write the filter file of every split that has pairs; ``name`` may use {stem} (trn) and {split} (train)."""
    for split, part in data.splits.items():
        if len(part.filter):
            with writing(folder / name.format(stem=PARTS[split], split=split)) as out:
                out.write(write_pairs(part.filter))


def write_card(data: Dataset, folder: Path) -> None:
    """Write card.json."""
    card: dict[str, Any] = {
        "name": data.name,
        "about": data.about,
        "licence": data.licence,
        "propensity": list(data.propensity),
    }
    if data.sources:
        card["sources"] = dict(sorted(data.sources.items()))
    with writing(folder / "card.json") as out:
        out.write(dump(card, folder / "card.json", orjson.OPT_INDENT_2))


def rows_of(split: Split) -> Iterator[dict[str, Any]]:
    """Yield the JSON object of every point; weights only where some differ from 1."""
    weighted = bool(np.any(split.targets.data != 1.0))
    indptr, indices, values = split.targets.indptr, split.targets.indices, split.targets.data
    for i, (uid, text) in enumerate(zip(split.uids, split.texts, strict=True)):
        part = slice(indptr[i], indptr[i + 1])
        row = {"uid": uid, "text": text, "labels": indices[part].tolist()}
        yield row | {"weights": values[part].tolist()} if weighted else row


def dump(row: dict[str, Any], path: Path, option: int = 0) -> bytes:
    """Return the JSON of one object and a newline; text that UTF-8 cannot hold is a DataError."""
    try:
        return orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE | option)
    except orjson.JSONEncodeError as error:
        raise DataError(f"{row!r:.100} cannot be written ({error})", path=path) from error


def _read_labels(path: Path) -> Labels:
    collector = LabelCollector(path)
    rows: list[tuple[int, dict[str, Any]]] = []
    plain: tuple[int, dict[str, Any]] = (0, {})  # of all labels with a text only
    for line, row in json_rows(path):
        collector.add(line, string(row, "uid", path, line), string(row, "text", path, line))
        known = {key: row[key] for key in CONCEPT_KEYS if key in row}
        rows.append((line, known) if known else plain)
    labels = collector.labels()
    concepts = read_concepts(rows, path)
    return replace(labels, concepts=concepts) if concepts else labels


def _read_split(path: Path, labels: int) -> Split:
    texts, uids = TextWriter(), TextWriter()
    rows = RowCollector(path, labels)
    for line, row in json_rows(path):
        uids.append(string(row, "uid", path, line))
        texts.append(string(row, "text", path, line))
        if "labels" not in row:
            raise DataError('the key "labels" is missing', path=path, line=line)
        rows.add(line, row["labels"], row.get("weights"))
    return make_split(path, texts.finish(), uids.finish(), rows.matrix())


def make_split(path: Path | str, texts: Sequence[str], uids: Sequence[str], targets: csr_matrix) -> Split:
    """Return the split read from ``path``; no rows or no positives raise a DataError."""
    if not len(texts):
        raise DataError("this file holds no points", path=path)
    if targets.nnz == 0:
        raise DataError("no row of this file has a label, so there are no positives", path=path)
    return Split(texts, targets, uids)


def string(row: dict[str, Any], key: str, path: Path, line: int | None) -> str:
    """Return a text field; a number becomes its digits, anything else is an error."""
    value = row.get(key)
    if isinstance(value, str):
        return value
    if type(value) is int:
        return str(value)
    what = f'the key "{key}" is missing' if key not in row else f'"{key}" must be a text, not {value!r:.60}'
    raise DataError(what, path=path, line=line)
