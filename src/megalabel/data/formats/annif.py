"""Corpora of Annif: short texts with the URIs of their subjects, or full texts with subject files.

A file is one of TSV (text, tab, ``<uri> <uri>``), CSV (columns ``text`` and ``subject_uris``) and JSON lines
(``{"text", "subjects": [{"uri", "label"}]}``), plain or gzip. A folder holds ``a.txt`` beside ``a.tsv`` or ``a.key``
with a subject on each line, or one ``a.json`` per text; or it holds such parts by the names ``train``, ``test`` and
optional ``val``. The vocabulary is ``subjects`` in the folder, or what ``--label-file`` names.

Written are ``train.jsonl``, ``test.jsonl`` and ``subjects.csv``, which Annif reads too; uids are the ``document_id``,
and weights are in ``metadata``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from megalabel.data.dataset import Dataset, Labels
from megalabel.data.formats import Options
from megalabel.data.formats._annif_documents import Document, Subject, corpus_kind, documents
from megalabel.data.formats._cells import Splitter, parse_weights
from megalabel.data.formats._delimited import quote_row
from megalabel.data.formats._label_file import read_label_file, vocabulary_rows
from megalabel.data.formats._rows import PARTS, show_weight
from megalabel.data.formats._tables import NAMES, Points, build_splits, has_weights, point_rows
from megalabel.data.formats.folder import assemble, dump, write_card, write_filters
from megalabel.errors import DataError
from megalabel.files import find, need, writing
from megalabel.progress import track

__all__ = ["looks_like", "read", "write"]

_ENDINGS = (".tsv", ".csv", ".jsonl")
_VOCABULARIES = tuple(f"subjects{ending}" for ending in (".ttl", ".rdf", ".nt", ".csv", ".tsv"))


def looks_like(path: Path) -> str | None:
    """Detect URIs behind a tab, the columns or keys of Annif, subject files beside texts, or parts like that."""
    kind = corpus_kind(path)
    if kind is not None:
        return f"corpus of Annif, {kind}"
    train = _part(path, NAMES["train"]) if path.is_dir() else None
    kind = None if train is None else corpus_kind(train)
    return None if train is None or kind is None else f"it holds {train.name}, a corpus of Annif, {kind}"


def read(path: Path, options: Options) -> Dataset:
    """Read the file or folder; any error in it is one DataError with file and line."""
    whole = corpus_kind(path) is not None or path.is_file()
    sources = {options.rows: path} if whole else _sources(path)
    if whole and options.rows == "train" and options.test_share is None:
        options = replace(options, test_share=0.1)  # there is no other place for test rows
    vocabulary = options.label_file or (find(path, *_VOCABULARIES) if path.is_dir() else None)
    subjects = _Subjects(None if vocabulary is None else read_label_file(vocabulary, options), vocabulary, options)
    parts = {split: _points(source, split, subjects, options) for split, source in sources.items()}
    labels = subjects.finish(path)
    full_texts = any(source.is_dir() for source in sources.values())
    choose = whole and options.rows == "train"
    splits, labels = build_splits(parts, labels, vocabulary, options, choose, "text" if full_texts else "line")
    return assemble(path, splits, labels, options)


def write(data: Dataset, folder: Path) -> None:
    """Write train.jsonl, test.jsonl, subjects.csv and val.jsonl into an empty folder."""
    header, rows = vocabulary_rows(data.labels)
    path = folder / "subjects.csv"
    with writing(path) as out:
        for cells in [header, *rows]:
            out.write(quote_row(cells, ",", path))
    names = dict(zip(data.labels.uids, rows, strict=True))
    place = header.index("label_en")
    for name, split in data.splits.items():
        path = folder / f"{name}.jsonl"
        weighted = has_weights(split)
        with writing(path) as out:
            for uid, text, labels, weights in track(point_rows(split, data.labels.uids), path.name, total=len(split)):
                subjects = [{"uri": label, "label": names[label][place]} for label in labels]
                row: dict[str, Any] = {"document_id": uid, "text": text, "subjects": subjects}
                if weighted:
                    row["metadata"] = {"weights": " ".join(map(show_weight, weights))}
                out.write(dump(row, path))
    write_filters(data, folder)
    write_card(data, folder)


def _part(folder: Path, names: tuple[str, ...]) -> Path | None:
    """Return the file or folder of a part."""
    path = find(folder, *(f"{name}{ending}" for name in names for ending in _ENDINGS))
    return path or next((folder / name for name in names if (folder / name).is_dir()), None)


def _sources(folder: Path) -> dict[str, Path]:
    found = {split: _part(folder, names) for split, names in NAMES.items()}
    if found["train"] is None:
        found["train"] = need(folder, *(f"train{ending}" for ending in _ENDINGS))
    return {split: path for split, path in found.items() if path is not None}


def _points(source: Path, split: str, subjects: _Subjects, options: Options) -> Points:
    kind = corpus_kind(source)
    if kind is None:
        what = "no corpus of Annif" if source.stat().st_size or source.is_dir() else "the file is empty"
        raise DataError(what, path=source, remedy=None)
    points = Points(source)
    for document in documents(source, kind, options):
        pairs = [(subjects.uid(subject), place) for place, subject in enumerate(document.subjects)]
        kept = [(uid, place) for uid, place in pairs if uid is not None]
        uid = document.uid
        if uid is None:
            number = len(points.lines)
            uid = str(number) if options.rows == "test" else f"{PARTS[split]}-{number}"
        points.add(document.line, document.text, uid)
        points.cells.append(tuple(uid for uid, _ in kept))
        points.weights.append(_weights(document, [place for _, place in kept], source))
    if not points.lines:
        raise DataError("this corpus holds no text with subjects", path=source)
    options.say(f"{source}: corpus of Annif, {kind}, {len(points.lines):,} texts")
    if all(weights is None for weights in points.weights):
        points.weights = []
    return points


def _weights(document: Document, places: list[int], source: Path) -> list[float] | None:
    if document.weights is None:
        return None
    weights = parse_weights(document.weights, Splitter(" ", strip=True))
    if len(weights) != len(document.subjects):
        what = f"{len(document.subjects)} subjects need as many weights, not {len(weights)}"
        raise DataError(what, path=source, line=document.line)
    return [weights[place] for place in places]


class _Subjects:
    """Looks up subjects in the vocabulary, by URI or name; without one, they are what the corpus calls them."""

    def __init__(self, labels: Labels | None, path: Path | None, options: Options) -> None:
        self.labels, self.path, self.options = labels, path, options
        self.known: dict[str, str] = {}  # uid -> text, without a vocabulary
        self.uids = set() if labels is None else set(labels.uids)
        self.by_name: dict[str, str | None] = {}
        for name, uid in () if labels is None else zip(labels.names, labels.uids, strict=True):
            self.by_name[name] = None if name in self.by_name else uid
        self.unknown: dict[str, int] = {}
        self.first: Subject | None = None

    def uid(self, subject: Subject) -> str | None:
        """Return the uid of the label, or None if there is no such label, which is counted."""
        named = subject.label or "" if subject.uri is None else subject.uri
        if self.labels is None:
            found = None if subject.label is None and not _is_uri(named) else named
            if found is not None and self.known.get(found, found) == found:
                self.known[found] = found if subject.label is None else subject.label
        elif subject.uri is None:
            found = self.by_name.get(named)
        else:
            found = named if named in self.uids else None
        if found is None:
            self._miss(subject, named)
        return found

    def _miss(self, subject: Subject, name: str) -> None:
        if self.options.strict:
            what = f"the subject {name!r:.80} {self._why(1)}"
            raise DataError(what, path=subject.path, line=subject.line, remedy="correct it, or leave out --strict")
        self.unknown[name] = self.unknown.get(name, 0) + 1
        self.first = self.first or subject

    def _why(self, count: int) -> str:
        verb = "is" if count == 1 else "are"
        return f"{verb} no URI" if self.labels is None else f"{verb} not in the vocabulary {self.path}"

    def finish(self, path: Path) -> Labels | None:
        """Say what is unknown; return the vocabulary, or the labels that the corpus names."""
        say: Callable[[str], None] = self.options.say
        if self.unknown and self.first is not None:
            count = len(self.unknown)
            where = f"{self.first.path}" + ("" if self.first.line is None else f":{self.first.line}")
            shown = next(iter(self.unknown))
            subjects = "1 subject" if count == 1 else f"{count:,} subjects"
            places = f"{sum(self.unknown.values()):,} times"
            say(
                f"{path}: {subjects}, named {places}, {self._why(count)} and left out (the first: {shown:.80}, {where})"
            )
        if self.labels is not None:
            return self.labels
        if not self.known:
            raise DataError("no text of this corpus has a subject", path=path)
        uids = sorted(self.known)
        texts = [self.known[uid] for uid in uids]
        bare = sum(uid == text and _is_uri(uid) for uid, text in zip(uids, texts, strict=True))
        if bare and self.options.rows == "train":
            say(f"{path}: {bare:,} of {len(uids):,} labels have no text but a URI; give a vocabulary: --label-file")
        return Labels(texts, uids)


def _is_uri(name: str) -> bool:
    return ":" in name
