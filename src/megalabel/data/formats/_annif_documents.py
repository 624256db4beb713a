"""The documents of Annif's corpora: a file of short texts (TSV, CSV, JSON lines), or a folder with a file per text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from megalabel.data.formats import Options
from megalabel.data.formats._delimited import open_delimited, sniff
from megalabel.data.formats._label_file import unbracket
from megalabel.data.formats._sniff import first_json, head
from megalabel.data.formats.folder import string
from megalabel.documents import parse_json
from megalabel.errors import DataError
from megalabel.files import BOM, decode, json_rows, open_bytes, read_lines

__all__ = ["CSV", "FULL_TEXT", "JSON_LINES", "TSV", "Document", "Subject", "corpus_kind", "documents"]

TSV, CSV, JSON_LINES, FULL_TEXT = "TSV", "CSV", "JSON lines", "full texts"
_KEYS = {"document_id", "text", "metadata", "subjects"}
_URI = re.compile(r"<[^<>\s]+>|(https?|urn|info|ark|doi):[^<>\s]+", re.IGNORECASE)
_FIRST = 1 << 24  # bytes to look at for the first line


@dataclass(frozen=True, slots=True)
class Subject:
    """A subject of a document, by URI, label or both, and where it stands."""

    uri: str | None
    label: str | None
    path: Path
    line: int | None


@dataclass(slots=True)
class Document:
    """A text and its subjects; ``line`` is a line of a file, or the number of the text in a folder."""

    line: int
    text: str
    subjects: list[Subject] = field(default_factory=list)
    uid: str | None = None
    weights: str | None = None


def corpus_kind(path: Path) -> str | None:
    """Return what kind of corpus a file or folder is, or None."""
    if path.is_dir():
        return FULL_TEXT if _is_full_text(path) else None
    suffix = Path(path.name.removesuffix(".gz")).suffix.lower()
    if suffix == ".jsonl":
        return JSON_LINES if _is_document(first_json(path)) else None
    if suffix == ".csv":
        columns = sniff(path, ",")[1]
        return CSV if {"text", "subject_uris"} <= set(columns) else None
    first = head(path, _FIRST).split(b"\n", 1)[0]
    text, tab, uris = first.partition(b"\t")
    tokens = uris.decode("utf-8", errors="replace").split()
    return TSV if text.strip() and tab and tokens and all(map(_URI.fullmatch, tokens)) else None


def documents(path: Path, kind: str, options: Options) -> Iterator[Document]:
    """Yield the documents of a corpus; ``options.say`` receives a line about those that are left out."""
    readers = {TSV: _read_tsv, CSV: _read_csv, JSON_LINES: _read_json_lines, FULL_TEXT: _read_full_texts}
    return readers[kind](path, options)


def _read_tsv(path: Path, options: Options) -> Iterator[Document]:
    skipped: list[int] = []
    for number, line in read_lines(path):
        text, tab, uris = decode(line, path, number).removesuffix("\r").partition("\t")
        if tab:
            yield Document(number, text, [Subject(unbracket(uri), None, path, number) for uri in uris.split()])
        elif text.strip():
            if options.strict:
                remedy = "write the text, a tab, and the URIs of its subjects"
                raise DataError("this line has no tab", path=path, line=number, remedy=remedy)
            skipped.append(number)
    if skipped:
        what = "1 line has no tab and is" if len(skipped) == 1 else f"{len(skipped):,} lines have no tab and are"
        options.say(f"{path}: {what} left out (the first is line {skipped[0]:,})")


def _read_csv(path: Path, options: Options) -> Iterator[Document]:
    table = open_delimited(path, ",")
    columns = [name for name in ("text", "subject_uris", "document_id") if name in table.columns]
    if "text" not in columns or "subject_uris" not in columns:
        what = f"no columns text and subject_uris among: {', '.join(table.columns)}"
        raise DataError(what, path=path, line=1)
    for line, (text, uris, *uid) in table.rows(columns):
        subjects = [Subject(unbracket(uri), None, path, line) for uri in uris.split()]
        yield Document(line, text, subjects, uid[0] if uid else None)


def _read_json_lines(path: Path, options: Options) -> Iterator[Document]:
    for line, row in json_rows(path):
        yield _document(row, path, line, line)


def _read_full_texts(path: Path, options: Options) -> Iterator[Document]:
    names = _names(path)
    unlabelled: list[str] = []
    texts = sorted(name for name in names if name.endswith(".txt"))
    number = 0
    for name in texts:
        stem = name.removesuffix(".txt")
        beside = next((f"{stem}{ending}" for ending in (".tsv", ".key") if f"{stem}{ending}" in names), None)
        if beside is None:
            unlabelled.append(name)
            continue
        number += 1
        subjects = list(_subject_file(path / beside))
        yield Document(number, _read_text(path / name), subjects, stem)
    for name in sorted(name for name in names if name.endswith(".json")):
        row = parse_json(_read_bytes(path / name), path / name)
        if isinstance(row, dict) and _is_document(row):
            number += 1
            document = _document(row, path / name, number, None)
            document.uid = name.removesuffix(".json") if document.uid is None else document.uid
            yield document
    if unlabelled:
        if options.strict:
            raise DataError(
                "this text has no subject file", path=path / unlabelled[0], remedy="add a .tsv or .key file"
            )
        what = "1 text has" if len(unlabelled) == 1 else f"{len(unlabelled):,} texts have"
        verb = "is" if len(unlabelled) == 1 else "are"
        options.say(f"{path}: {what} no subject file and {verb} left out (the first is {unlabelled[0]})")


def _subject_file(path: Path) -> Iterator[Subject]:
    """Yield the subjects of a ``.tsv`` or ``.key`` file: a URI in angle brackets, a label, or both, on each line."""
    text = _read_text(path)
    for number, line in enumerate(text.split("\n"), start=1):
        cells = [cell.strip() for cell in line.split("\t") if cell.strip()]
        if not cells:
            continue
        uri = unbracket(cells[0]) if unbracket(cells[0]) != cells[0] else None
        label = cells[0] if uri is None else cells[1] if len(cells) > 1 else None
        yield Subject(uri, label, path, number)


def _document(row: dict[str, Any], path: Path, number: int, line: int | None) -> Document:
    """Return the document of a JSON object; ``line`` is None if the object is a file of its own."""
    if "text" not in row and "metadata" not in row:
        raise DataError('the keys "text" and "metadata" are missing, one is needed', path=path, line=line)
    text = string(row, "text", path, line) if "text" in row else ""
    uid = string(row, "document_id", path, line) if "document_id" in row else None
    metadata, subjects = row.get("metadata", {}), row.get("subjects", [])
    if not isinstance(metadata, dict):
        raise DataError(f'"metadata" must be an object, not {metadata!r:.60}', path=path, line=line)
    if not isinstance(subjects, list):
        raise DataError(f'"subjects" must be a list, not {subjects!r:.60}', path=path, line=line)
    found = [_subject(subject, path, line) for subject in subjects]
    weights = metadata.get("weights")
    return Document(number, text, found, uid, weights if isinstance(weights, str) else None)


def _subject(subject: Any, path: Path, line: int | None) -> Subject:
    uri, label = (subject.get("uri"), subject.get("label")) if isinstance(subject, dict) else (None, None)
    if (uri is None and label is None) or not isinstance(uri, str | None) or not isinstance(label, str | None):
        what = f'a subject must be {{"uri": "..."}} or {{"label": "..."}}, not {subject!r:.60}'
        raise DataError(what, path=path, line=line)
    return Subject(uri, label, path, line)


def _is_document(row: Any) -> bool:
    return isinstance(row, dict) and bool(row) and set(row) <= _KEYS and ("text" in row or "metadata" in row)


def _is_full_text(path: Path) -> bool:
    names = _names(path)
    stems = {name.removesuffix(".txt") for name in names if name.endswith(".txt")}
    if any(f"{stem}{ending}" in names for stem in stems for ending in (".tsv", ".key")):
        return True
    found = next((name for name in sorted(names) if name.endswith(".json")), None)
    if found is None:
        return False
    try:
        return _is_document(parse_json(_read_bytes(path / found), path / found))
    except DataError:
        return False


def _names(path: Path) -> set[str]:
    try:
        return {entry.name for entry in path.iterdir()}
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise DataError(f"this folder cannot be read, {reason}", path=path) from error


def _read_bytes(path: Path) -> bytes:
    with open_bytes(path) as stream:
        return stream.read().removeprefix(BOM)


def _read_text(path: Path) -> str:
    content = _read_bytes(path)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise DataError("not UTF-8", path=path, line=line, remedy="save the file as UTF-8") from error
