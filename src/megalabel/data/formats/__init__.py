"""One module per format, each with the same three functions.

``looks_like(path)`` says in a short phrase why the path is of this format, or returns
None; ``read(path, options)`` returns a :class:`~megalabel.data.dataset.Dataset`;
``write(data, folder)`` fills an empty folder. Add a format by adding a module to
``FORMATS``; detection, conversion and the command line follow.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Protocol

from megalabel.errors import DataError, SettingError, nearest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from megalabel.data.dataset import Dataset, Labels

__all__ = ["FORMATS", "TABLES", "Format", "Options", "detect", "get_format"]


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the readers; each format uses those that apply to it."""

    text_column: str | None = None  # tables
    labels_column: str | None = None  # tables
    uid_column: str | None = None  # tables
    separator: str | None = None  # tables: between the labels of one cell
    label_file: Path | None = None  # tables, Annif: uid and text of each label, or a vocabulary
    language: str | None = None  # vocabularies: of the labels
    label_text: str | None = None  # vocabularies: what the text of a label is, "label+alt+path"
    fields: str | None = None  # repository JSON: "title" or "title+content"
    test_share: float | None = None  # hold this share of train out as test if there is no test part
    seed: int = 0
    strict: bool = False  # tables: odd rows are errors
    rows: str = "train"  # one table without a column for it: what its rows are, train or test
    known: Labels | None = None  # tables: labels that cells may name, to tell what separates them
    say: Callable[[str], None] = lambda line: None  # receives what the reader decided


class Format(Protocol):
    """A format module."""

    def looks_like(self, path: Path) -> str | None:
        """Return why the path has this format, or None if it does not."""
        ...

    def read(self, path: Path, options: Options) -> Dataset:
        """Read the set; everything wrong in it is a DataError with file and line."""
        ...

    def write(self, data: Dataset, folder: Path) -> None:
        """Fill an empty folder."""
        ...


# Name -> what it is; the order is the order of detection.
FORMATS = {
    "folder": "trn.jsonl, tst.jsonl, lbl.jsonl (our own; optional val, filters, weights, .gz)",
    "xmc-json": "extreme classification repository: trn.json.gz, tst.json.gz, lbl.json.gz",
    "dexml": "raw/trn_X.txt, raw/tst_X.txt, raw/Y.txt with Y.trn.npz, Y.tst.npz",
    "xmc-sparse": "extreme classification repository: trn_X_Y.txt, tst_X_Y.txt with raw texts",
    "beir": "corpus.jsonl, queries.jsonl, qrels/*.tsv",
    "annif": "corpora of Annif: short texts in TSV, CSV or JSON lines, or a folder of documents with subject files",
    "csv": "comma-separated tables, one file or train/test/labels.csv",
    "tsv": "tab-separated tables, one file or train/test/labels.tsv",
    "parquet": "Parquet tables, one file or train/test/labels.parquet",
}

TABLES = ("csv", "tsv", "parquet")


def get_format(name: str) -> Format:
    """Return the module of a format by its name."""
    if name not in FORMATS:
        raise SettingError(f"unknown format {name!r}", remedy=nearest(name, FORMATS))
    module: Format = import_module(f"megalabel.data.formats.{name.replace('-', '_')}")
    return module


def detect(path: Path) -> tuple[str, str]:
    """Detect the format from the content of the path; return (format name, reason)."""
    try:
        exists = path.exists()
    except OSError as error:
        raise DataError(f"this path cannot be read, {(error.strerror or '').lower()}", path=path) from error
    if not exists:
        raise DataError("no such file or folder", path=path)
    for name in FORMATS:
        why = get_format(name).looks_like(path)
        if why is not None:
            return name, why
    raise DataError("no known data format", path=path, remedy=f"force one with --from: {', '.join(FORMATS)}")
