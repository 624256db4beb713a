"""Shared by the readers: gather labels and ragged rows, then check them all at once."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from megalabel.data.dataset import Labels
from megalabel.data.matrices import MatrixWriter
from megalabel.data.texts import TextWriter
from megalabel.documents import parse_whole
from megalabel.errors import DataError
from megalabel.files import decode, find, read_lines
from megalabel.wording import counted

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

__all__ = ["PARTS", "LabelCollector", "RowCollector", "checked_matrix", "read_filter", "read_pairs", "write_pairs"]

PARTS = {"train": "trn", "val": "val", "test": "tst"}
_CELLS = 1 << 20  # checked at a time
LEAST = 2.0**-150  # weights up to this are 0 in float32


class LabelCollector:
    """Collects the labels of one file; a duplicate uid is an error.

    >>> collector = LabelCollector("lbl.jsonl")
    >>> collector.add(1, "r", "red")
    >>> collector.labels()
    Labels(texts=['red'], uids=['r'])
    """

    def __init__(self, path: Path | str) -> None:
        self.path = path
        self.uids, self.texts = TextWriter(), TextWriter()
        self.lines = array("q")

    def __len__(self) -> int:
        return len(self.lines)

    def add(self, line: int, uid: str, text: str) -> None:
        """Add a label."""
        self.lines.append(line)
        self.uids.append(uid)
        self.texts.append(text)

    def labels(self) -> Labels:
        """Return the labels; raises a DataError if there are none, or two of one uid."""
        if not len(self):
            raise DataError("this file holds no labels", path=self.path)
        labels = Labels(self.texts.finish(), self.uids.finish())
        if labels.repeated is not None:
            label, first = labels.repeated
            what = f"duplicate label uid {labels.uids[label]!r}, first on line {self.lines[first]}"
            raise DataError(what, path=self.path, line=self.lines[label])
        return labels


class RowCollector:
    """Collects (line, label ids, weights) and turns them into a checked csr matrix, a block of rows at a time.

    >>> rows = RowCollector("trn.jsonl", labels=3)
    >>> rows.add(1, [2, 0])
    >>> rows.add(2, [1], [0.5])
    >>> rows.matrix().toarray().tolist()
    [[1.0, 0.0, 1.0], [0.0, 0.5, 0.0]]
    """

    def __init__(self, path: Path | str, labels: int) -> None:
        self.path, self.labels = path, labels
        self._written = MatrixWriter(labels, np.float32)
        self._begin()

    def _begin(self) -> None:
        """Begin a block of rows."""
        self.lines = array("q")
        self.indptr = array("q", [0])
        self.indices = array("q")
        self.values = array("f")
        self.weighted = False

    def __len__(self) -> int:
        return self._written.rows + len(self.lines)

    def add(self, line: int, ids: Any, weights: Any = None) -> None:
        """Add a row; ids must be a list of whole numbers, weights (if any) a list as long."""
        if not isinstance(ids, Sequence) or isinstance(ids, str):
            raise self._wrong(line, f"labels must be a list of numbers, not {ids!r:.60}")
        odd = next((i for i in ids if type(i) is not int), None) if set(map(type, ids)) - {int} else 0
        if type(odd) is not int:
            raise self._wrong(line, f"label id {odd!r:.60} is not a whole number")
        try:
            self.indices.extend(ids)
        except OverflowError as error:
            raise self._wrong(line, "a label id is far out of range") from error
        if weights is not None:
            self._add_weights(line, ids, weights)
        elif self.weighted:
            self.values.extend([1.0] * len(ids))
        self.lines.append(line)
        self.indptr.append(len(self.indices))
        if len(self.indices) > _CELLS:
            self._write()

    def matrix(self) -> sparse.csr_matrix:
        """Return [rows, labels] float32, or raise at the first id that is out of range or a duplicate in its row."""
        self._write()
        matrix = self._written.finish()
        matrix.has_canonical_format = True  # as every block has been checked
        return matrix

    def _write(self) -> None:
        """Check the block of rows and end it."""
        indices = np.frombuffer(self.indices, dtype=np.int64) if self.indices else np.empty(0, dtype=np.int64)
        values = np.frombuffer(self.values, dtype=np.float32) if self.weighted and self.values else None
        indptr = np.frombuffer(self.indptr, dtype=np.int64)
        block = checked_matrix(self.path, indptr, indices, values, self.labels, self.lines)
        self._written.append(np.diff(block.indptr), block.indices, block.data)
        self._begin()

    def _add_weights(self, line: int, ids: Sequence[int], weights: Any) -> None:
        if not isinstance(weights, Sequence) or isinstance(weights, str) or len(weights) != len(ids):
            raise self._wrong(
                line, f"{counted(len(ids), 'label')} {'needs' if len(ids) == 1 else 'need'} as many weights, in a list"
            )
        for weight in weights:
            if isinstance(weight, bool) or not isinstance(weight, int | float) or not LEAST < weight <= 1:
                raise self._wrong(line, f"weight {weight!r:.60} is not a number in (0, 1]")
        if not self.weighted:
            self.weighted = True
            self.values.extend([1.0] * (len(self.indices) - len(ids)))
        self.values.extend(weights)

    def _wrong(self, line: int, what: str) -> DataError:
        return DataError(what, path=self.path, line=line)


def checked_matrix(
    path: Path | str,
    indptr: NDArray[np.int64],
    indices: NDArray[np.int64],
    values: NDArray[np.float32] | None,
    labels: int,
    lines: Sequence[int] | None = None,
) -> sparse.csr_matrix:
    """Return the csr matrix [rows, labels] float32 of these parts, its columns sorted; values None means all ones.

    An id that is out of range, or a duplicate in its row, raises a DataError at
    ``lines[row]``, or at row + 1 if there are no lines.
    """

    def wrong(position: int, what: str, remedy: str | None = None) -> DataError:
        row = int(np.searchsorted(indptr, position, side="right")) - 1
        return DataError(what, path=path, line=row + 1 if lines is None else lines[row], remedy=remedy)

    bad = np.flatnonzero((indices < 0) | (indices >= labels))
    if len(bad):
        raise wrong(
            int(bad[0]),
            f"label id {indices[bad[0]]} is out of range, the set has {labels:,} labels",
            f"ids run from 0 to {labels - 1}",
        )
    numbers = np.ones(len(indices), np.float32) if values is None else values.astype(np.float32)
    small = np.int32 if max(labels, len(indices)) < 2**31 else np.int64
    matrix = sparse.csr_matrix((numbers, indices.astype(small), indptr.astype(small)), (len(indptr) - 1, labels))
    matrix.sort_indices()
    same = matrix.indices[1:] == matrix.indices[:-1]
    starts = matrix.indptr[1:-1]
    same[starts[(starts > 0) & (starts < len(matrix.indices))] - 1] = False
    bad = np.flatnonzero(same)
    if len(bad):
        raise wrong(int(bad[0]) + 1, f"duplicate label id {matrix.indices[bad[0]]} in one row")
    return matrix


def read_filter(folder: Path, split: str, rows: int, labels: int) -> NDArray[np.int64]:
    """Read the filter pairs of a split under any of the usual file names; no file means no pairs."""
    stem = PARTS[split]
    path = find(folder, f"filter_{stem}.txt", f"filter_labels_{split}.txt", f"{stem}_filter_labels.txt")
    return np.empty((0, 2), dtype=np.int64) if path is None else read_pairs(path, rows, labels)


def read_pairs(path: Path, rows: int, labels: int) -> NDArray[np.int64]:
    """Read a filter file: a ``row label`` pair of whole numbers on each line."""
    pairs = array("q")
    for number, line in read_lines(path):
        parts = line.split()
        if not parts:
            continue
        try:
            row, label = map(parse_whole, parts)
        except ValueError:
            shown = decode(line, path, number)
            raise DataError(f"expected two whole numbers, not {shown!r:.60}", path=path, line=number) from None
        if not (0 <= row < rows and 0 <= label < labels):
            what = f"filter pair {row} {label} is out of range of {rows:,} rows and {labels:,} labels"
            raise DataError(what, path=path, line=number)
        pairs.extend((row, label))
    return np.frombuffer(pairs, dtype=np.int64).reshape(-1, 2).copy() if pairs else np.empty((0, 2), dtype=np.int64)


def write_pairs(pairs: NDArray[np.int64]) -> bytes:
    """Return the bytes of a filter file."""
    return "".join(f"{row} {label}\n" for row, label in pairs.tolist()).encode()


@lru_cache(maxsize=65536)
def show_weight(value: float) -> str:
    """Return the shortest digits that parse to the same float32.

    >>> show_weight(float(np.float32(0.7))), show_weight(1.0)
    ('0.7', '1.0')
    """
    text = str(np.float32(value))
    return text if np.float32(float(text)) == np.float32(value) else repr(value)
