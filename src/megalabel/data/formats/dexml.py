"""The layout of the DEXML code: raw texts beside scipy matrices.

``raw/trn_X.txt``, ``raw/tst_X.txt`` and ``raw/Y.txt`` hold one text per line, ``Y.trn.npz``
and ``Y.tst.npz`` the relevance [N, L]; optional ``filter_labels_train.txt`` and
``filter_labels_test.txt`` hold ``row label`` pairs. Where the relevance is graded with
values above 1, all of it is divided by the largest.
"""

from __future__ import annotations

import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from megalabel.data.dataset import Dataset, Labels
from megalabel.data.formats import Options
from megalabel.data.formats._raw import find_raw, read_raw, write_raw
from megalabel.data.formats._rows import PARTS, LabelCollector, checked_matrix
from megalabel.data.formats.folder import assemble, make_split, write_card, write_filters
from megalabel.data.matrices import map_blocks
from megalabel.errors import DataError
from megalabel.files import find, need, open_bytes, writing

__all__ = ["looks_like", "read", "write"]

# What numpy, zipfile and scipy raise for a file that is not what it should be.
_ZIP = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, OSError)
_BROKEN = (*_ZIP, MemoryError, ValueError, TypeError, KeyError, AttributeError, NotImplementedError)


def looks_like(path: Path) -> str | None:
    """Detect the folder by Y.trn.npz."""
    return "it holds Y.trn.npz" if path.is_dir() and find(path, "Y.trn.npz") else None


def read(path: Path, options: Options) -> Dataset:
    """Read the folder; any error in it is one DataError."""
    sources = {name: find(path, f"Y.{stem}.npz") for name, stem in PARTS.items()}
    sources["train"] = need(path, "Y.trn.npz")
    labels = read_labels(path)
    texts = {name: find_raw(path, name) for name, source in sources.items() if source is not None}
    points = {name: read_raw(raw, PARTS[name]) for name, raw in texts.items()}
    targets = {}
    for name, source in sources.items():
        if source is not None:
            targets[name] = _read_matrix(source, texts[name], (len(points[name][0]), len(labels)))
    largest = max((matrix.data.max() for matrix in targets.values() if matrix.nnz), default=1.0)
    if largest > 1:
        for matrix in targets.values():
            matrix.data /= np.float32(largest)
    splits = {}
    for name in list(targets):
        kept = map_blocks(lambda block, rows: block, targets.pop(name))  # large ones leave memory
        splits[name] = make_split(path / f"Y.{PARTS[name]}.npz", *points[name], kept)
    return assemble(path, splits, labels, options)


def read_labels(folder: Path) -> Labels:
    """Read the label texts from the raw file of a folder."""
    path = find_raw(folder, None)
    collector = LabelCollector(path)
    for line, (text, uid) in enumerate(zip(*read_raw(path, "lbl"), strict=True), start=1):
        collector.add(line, uid, text)
    return collector.labels()


def write(data: Dataset, folder: Path) -> None:
    """Write the set into an empty folder."""
    write_raw(data, folder)
    for name, split in data.splits.items():
        with writing(folder / f"Y.{PARTS[name]}.npz") as out:
            sparse.save_npz(out, split.targets)
    write_filters(data, folder, "filter_labels_{split}.txt")
    write_card(data, folder)


def _read_matrix(path: Path, texts: Path, shape: tuple[int, int]) -> sparse.csr_matrix:
    """Load a sparse matrix of this shape without trusting it."""
    with open_bytes(path) as stream:
        try:
            stored: Any = sparse.load_npz(stream)  # never unpickles
            _check_shape(path, texts, stored.shape, shape)
            if hasattr(stored, "check_format"):
                stored.check_format(full_check=True)
            parts = stored.tocsr()
            values = np.asarray(parts.data, dtype=np.float32)
        except _BROKEN as error:
            raise DataError(f"this is not a sparse matrix saved by scipy ({error})", path=path) from error
    bad = np.flatnonzero(~(values >= 0) | np.isinf(values))
    if len(bad):
        row = int(np.searchsorted(parts.indptr, bad[0], side="right"))
        raise DataError(f"relevance {values[bad[0]]} is not a number of 0 or more", path=path, line=row)
    matrix = checked_matrix(path, parts.indptr.astype(np.int64), parts.indices.astype(np.int64), values, shape[1])
    matrix.eliminate_zeros()
    return matrix


def _check_shape(path: Path, texts: Path, stored: tuple[int, ...], shape: tuple[int, int]) -> None:
    if len(stored) != 2 or stored[1] != shape[1]:
        raise DataError(f"the matrix has {stored[-1]:,} columns, but there are {shape[1]:,} label texts", path=path)
    if stored[0] != shape[0]:
        raise DataError(f"{shape[0]:,} lines, but {path.name} has {stored[0]:,} rows", path=texts)
