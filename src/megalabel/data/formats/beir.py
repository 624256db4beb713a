"""The layout of BEIR: labels are the corpus, points are the queries, relevance is in qrels.

``corpus.jsonl`` holds ``{"_id", "title", "text"}``, ``queries.jsonl`` ``{"_id", "text"}``;
``qrels/train.tsv``, ``test.tsv`` and optional ``dev.tsv`` hold ``query-id corpus-id score``
below a header. A score of 0 or less means not relevant; whole numbers are divided by the
largest, decimals in (0, 1] are weights as they are.

A query belongs to the splits whose qrels name it. If this package wrote the files,
``"metadata": {"splits": {"train": 7}}`` also says which row it was, so that the order and
points without labels survive.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from megalabel.data.dataset import Dataset, Labels, Split
from megalabel.data.formats import Options
from megalabel.data.formats._delimited import open_delimited, quote_row
from megalabel.data.formats._rows import LabelCollector, RowCollector, show_weight
from megalabel.data.formats._tables import has_weights, point_rows
from megalabel.data.formats.folder import assemble, dump, make_split, string, write_card, write_filters
from megalabel.documents import parse_number
from megalabel.errors import DataError
from megalabel.files import find, json_rows, need, writing
from megalabel.progress import track

__all__ = ["looks_like", "read", "write"]

QRELS = {
    "train": ("qrels/train.tsv",),
    "val": ("qrels/dev.tsv", "qrels/val.tsv", "qrels/valid.tsv"),
    "test": ("qrels/test.tsv",),
}
HEADER = ["query-id", "corpus-id", "score"]


@dataclass
class _Queries:
    texts: dict[str, str] = field(default_factory=dict)
    rows: dict[str, dict[str, int]] = field(default_factory=lambda: {name: {} for name in QRELS})  # split, uid -> row


@dataclass
class _Qrels:
    path: Path
    pairs: dict[str, dict[int, float]] = field(default_factory=dict)  # query, label -> score; all that are named
    lines: dict[str, int] = field(default_factory=dict)
    largest: float = 0.0
    whole: bool = True


def looks_like(path: Path) -> str | None:
    """Detect the folder by corpus.jsonl and queries.jsonl."""
    if path.is_dir() and find(path, "corpus.jsonl") and find(path, "queries.jsonl"):
        return "it holds corpus.jsonl and queries.jsonl"
    return None


def read(path: Path, options: Options) -> Dataset:
    """Read the folder; any error in it is one DataError with file and line."""
    corpus, questions = need(path, "corpus.jsonl"), need(path, "queries.jsonl")
    sources = {name: find(path, *names) for name, names in QRELS.items()}
    if sources["train"] is None:
        raise DataError(
            "there is no qrels/train.tsv to train on; many BEIR sets are for testing only",
            path=path,
            remedy="add qrels/train.tsv with the train pairs",
        )
    labels = _read_corpus(corpus)
    queries = _read_queries(questions)
    label_numbers = {uid: i for i, uid in enumerate(labels.uids)}
    qrels_of = {
        name: _read_qrels(source, label_numbers, queries.texts)
        for name, source in sources.items()
        if source is not None
    }
    largest = max(qrels.largest for qrels in qrels_of.values())
    whole = all(qrels.whole for qrels in qrels_of.values())
    if largest > 1 and not whole:
        odd = next(qrels for qrels in qrels_of.values() if qrels.largest > 1)
        raise DataError(f"score {odd.largest:g}, but scores with decimals must lie in (0, 1]", path=odd.path)
    divisor = largest if whole and largest > 0 else 1.0
    splits = {name: _make_split(qrels, queries, name, len(labels), divisor) for name, qrels in qrels_of.items()}
    return assemble(path, splits, labels, options)


def write(data: Dataset, folder: Path) -> None:
    """Write the set into an empty folder; a query id must not belong to two texts or two rows of a split."""
    path = folder / "corpus.jsonl"
    with writing(path) as out:
        for uid, text in zip(data.labels.uids, data.labels.texts, strict=True):
            out.write(dump({"_id": uid, "title": "", "text": text}, path))
    path = folder / "queries.jsonl"
    queries = _gather(data, path)
    with writing(path) as out:
        for uid, text in queries.texts.items():
            rows = {name: places[uid] for name, places in queries.rows.items() if uid in places}
            out.write(dump({"_id": uid, "text": text, "metadata": {"splits": rows}}, path))
    (folder / "qrels").mkdir()
    soft = any(has_weights(split) for split in data.splits.values())
    for name, split in data.splits.items():
        path = folder / QRELS[name][0]
        with writing(path) as out:
            out.write(quote_row(HEADER, "\t", path))
            for uid, _, relevant, weights in track(point_rows(split, data.labels.uids), f"writing {path.name}"):
                for label, weight in zip(relevant, weights, strict=True):
                    out.write(quote_row([uid, label, show_weight(weight) if soft else "1"], "\t", path))
    write_filters(data, folder)
    write_card(data, folder)


def _gather(data: Dataset, path: Path) -> _Queries:
    """Merge the points of all splits into one list of queries."""
    queries = _Queries()
    for name, split in data.splits.items():
        for row, (uid, text) in enumerate(zip(split.uids, split.texts, strict=True)):
            if uid in queries.rows[name] or queries.texts.get(uid, text) != text:
                raise DataError(
                    f"query id {uid!r} belongs to two points, which BEIR cannot represent",
                    path=path,
                    remedy="give every point a uid of its own, or write another format",
                )
            queries.texts[uid] = text
            queries.rows[name][uid] = row
    return queries


def _read_corpus(path: Path) -> Labels:
    collector = LabelCollector(path)
    for line, row in json_rows(path):
        text = string(row, "text", path, line)
        title = string(row, "title", path, line) if row.get("title") is not None else ""
        collector.add(line, string(row, "_id", path, line), f"{title} {text}" if title and text else title or text)
    return collector.labels()


def _read_queries(path: Path) -> _Queries:
    queries = _Queries()
    for line, row in json_rows(path):
        uid = string(row, "_id", path, line)
        if uid in queries.texts:
            raise DataError(f"duplicate query id {uid!r}", path=path, line=line)
        queries.texts[uid] = string(row, "text", path, line)
        metadata = row.get("metadata")
        splits: Any = metadata.get("splits") if isinstance(metadata, dict) else None
        for name, number in splits.items() if isinstance(splits, dict) else ():
            if name in queries.rows and type(number) is int:
                queries.rows[name][uid] = number
    return queries


def _read_qrels(path: Path, labels: Mapping[str, int], queries: Mapping[str, str]) -> _Qrels:
    table = open_delimited(path, "\t")
    if len(table.columns) != 3 or "query" not in table.columns[0].lower():
        shown = " ".join(table.columns)
        raise DataError(f"expected a header 'query-id corpus-id score', not {shown!r:.60}", path=path, line=1)
    qrels = _Qrels(path)
    for line, (query, label, score) in table.rows(table.columns):
        if query not in queries:
            raise DataError(f"query {query!r} is not in queries.jsonl", path=path, line=line)
        if label not in labels:
            raise DataError(f"document {label!r} is not in corpus.jsonl", path=path, line=line)
        try:
            value = parse_number(score.strip())
        except ValueError:
            value = float("nan")
        if not abs(value) < float("inf"):
            raise DataError(f"score {score!r} is not a number", path=path, line=line)
        pairs = qrels.pairs.setdefault(query, {})
        qrels.lines.setdefault(query, line)
        if labels[label] in pairs:
            raise DataError(f"duplicate pair {query!r}, {label!r}", path=path, line=line)
        pairs[labels[label]] = value
        qrels.largest = max(qrels.largest, value)
        qrels.whole = qrels.whole and score.strip().lstrip("+-").isdigit()
    return qrels


def _make_split(qrels: _Qrels, queries: _Queries, name: str, labels: int, divisor: float) -> Split:
    """Put the queries of a split in order, those with a row number first, and gather their labels."""
    rows = queries.rows[name]
    order = {uid: i for i, uid in enumerate(queries.texts) if uid in qrels.pairs or uid in rows}
    uids = sorted(order, key=lambda uid: (rows.get(uid, len(queries.texts)), order[uid]))
    collected = RowCollector(qrels.path, labels)
    for uid in uids:
        relevant = {label: score / divisor for label, score in qrels.pairs.get(uid, {}).items() if score > 0}
        collected.add(qrels.lines.get(uid, 1), list(relevant), list(relevant.values()))
    return make_split(qrels.path, [queries.texts[uid] for uid in uids], uids, collected.matrix())
