"""Tab-separated tables: one file, or a folder with train.tsv, test.tsv, labels.tsv and optional val.tsv.

Columns: text, labels (a separator between them, or a JSON list), optional uid and
weights, and in a single file an optional split (train, val, test). labels.tsv holds uid
and text of each label; without it the cells themselves name the labels.
"""

from __future__ import annotations

from pathlib import Path

from megalabel.data.dataset import Dataset
from megalabel.data.formats import Options
from megalabel.data.formats._delimited import looks_delimited, open_delimited, write_delimited
from megalabel.data.formats._tables import read_tables

__all__ = ["looks_like", "read", "write"]


def looks_like(path: Path) -> str | None:
    """Detect train.tsv in a folder, or a tab-separated file."""
    return looks_delimited(path, ".tsv", "\t")


def read(path: Path, options: Options) -> Dataset:
    """Read the file or folder; any error in it is one DataError with file and line."""
    return read_tables(path, options, ".tsv", lambda table: open_delimited(table, "\t"))


def write(data: Dataset, folder: Path) -> None:
    """Write train.tsv, test.tsv, labels.tsv and val.tsv into an empty folder."""
    write_delimited(data, folder, ".tsv", "\t")
