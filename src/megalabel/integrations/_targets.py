"""The y of a scikit-learn style classifier: read in any of its forms, and predictions written in the same form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import assert_all_finite, column_or_1d

from megalabel.errors import DataError, nearest

__all__ = ["Form", "InputError", "Targets", "read_targets"]

Kind: TypeAlias = Literal["lists", "joined", "column", "dense", "sparse"]


class InputError(DataError, ValueError):
    """Texts or labels that cannot be used; a ValueError too, which is what scikit-learn's tools expect."""


@dataclass(frozen=True)
class Form:
    """How y was written, to write predictions the same way; ``usual`` is the column of the most frequent label."""

    kind: Kind
    classes: NDArray[Any]  # [L]
    usual: int
    separator: str | None = None
    dtype: np.dtype[Any] | None = None  # of an indicator matrix

    def written(self, columns: Sequence[Sequence[int]]) -> Any:
        """Return labels of texts, best first, as y was: lists, joined or single names, or an indicator matrix."""
        if self.kind == "column":
            return self.classes[[row[0] if len(row) else self.usual for row in columns]]
        if self.kind in ("dense", "sparse"):
            indptr = np.cumsum([0, *map(len, columns)])
            indices = np.array([column for row in columns for column in row], dtype=np.int64)
            ones = np.ones(len(indices), dtype=self.dtype)
            matrix = sparse.csr_matrix((ones, indices, indptr), shape=(len(columns), len(self.classes)))
            matrix.sort_indices()
            return matrix if self.kind == "sparse" else matrix.toarray()
        rows = np.empty(len(columns), dtype=object)
        for number, row in enumerate(columns):
            names = self.classes[list(row)].tolist()
            rows[number] = names if self.kind == "lists" else self._joined(names)
        return rows

    def _joined(self, names: list[str]) -> str:
        separator = str(self.separator)
        return (separator if separator != separator.strip() else f"{separator} ").join(names)


@dataclass(frozen=True)
class Targets:
    """What y said: which of the labels [L] each text has [n, L], and how that was written.

    >>> targets = read_targets(["red, shoe", "hat"], ",")
    >>> targets.form.classes.tolist(), targets.relevant.toarray().tolist()
    (['hat', 'red', 'shoe'], [[0.0, 1.0, 1.0], [1.0, 0.0, 0.0]])
    >>> targets.form.written([[1, 2], []]).tolist()
    ['red, shoe', '']
    """

    form: Form
    relevant: sparse.csr_matrix

    @classmethod
    def of(
        cls,
        kind: Kind,
        classes: NDArray[Any],
        relevant: sparse.csr_matrix,
        separator: str | None = None,
        dtype: np.dtype[Any] | None = None,
    ) -> Targets:
        """Put the parts together; count which label is the most frequent."""
        usual = int(np.argmax(np.asarray(relevant.sum(axis=0)))) if relevant.shape[1] else 0
        return cls(Form(kind, classes, usual, separator, dtype), relevant)

    def __len__(self) -> int:
        return int(self.relevant.shape[0])

    def described(self, texts: Mapping[Any, str] | Sequence[str] | None) -> tuple[Targets, list[str]]:
        """Return the targets and a text for every label: that of ``texts``, or else its name.

        A name that only ``texts`` has becomes a label too; the columns of an indicator matrix are all there are. A
        sequence has the texts of the columns in their order.
        """
        form, names = self.form, self.form.classes.tolist()
        indicator = form.kind in ("dense", "sparse")
        if texts is not None and not isinstance(texts, Mapping):
            if not indicator or len(texts) != len(names):
                raise InputError(
                    f"label_texts has {len(texts):,} texts without names, for {len(names):,} labels",
                    remedy="map names to texts; a list is for the columns of an indicator matrix",
                )
            return self, [str(text) for text in texts]
        given = dict(texts or {})
        new = set(given) - set(names)
        if indicator and new:
            odd = min(map(str, new))
            raise InputError(f"label_texts has {odd!r}, which is no column of y", remedy=nearest(odd, map(str, names)))
        described = self
        if new:
            classes = np.array(sorted({*names, *new}, key=str), dtype=object)
            place = {name: column for column, name in enumerate(classes.tolist())}
            columns = np.array([place[name] for name in names], dtype=np.int64)[self.relevant.indices]
            parts = self.relevant.data, columns, self.relevant.indptr
            relevant = sparse.csr_matrix(parts, shape=(len(self), len(classes)))
            described = Targets.of(form.kind, classes, relevant, form.separator, form.dtype)
        return described, [str(given.get(name, name)) for name in described.form.classes.tolist()]


def read_targets(y: Any, separator: str | None = None) -> Targets:
    """Read lists of names, a column of names, a column of joined names with a separator, or an indicator matrix."""
    if y is None:
        raise InputError("MegalabelClassifier requires y to be passed, but the target y is None")
    if separator is not None and not separator:
        raise InputError("separator is empty", remedy="give what stands between the names, or None")
    is_sparse = bool(sparse.issparse(y))
    matrix = sparse.csr_matrix(y) if is_sparse else None
    array = _as_array(y) if matrix is None else None
    columns = [str(name) for name in y.columns] if hasattr(y, "columns") else None
    if array is not None and array.ndim == 2 and array.shape[1] == 1:
        array = column_or_1d(array, warn=True)
    if array is not None and array.ndim == 1 and array.dtype.kind in "OUS":
        return _names(array.tolist(), separator)
    if separator is not None:
        raise InputError("separator is for a column of strings, and y holds numbers", remedy="leave separator out")
    if matrix is not None:
        return _indicator(matrix, "sparse", matrix.dtype, columns)
    assert array is not None
    if array.ndim > 2:
        raise InputError(f"y has {array.ndim} dimensions", remedy="give one or two")
    return _numbers(array) if array.ndim == 1 else _indicator(array, "dense", array.dtype, columns)


def _as_array(y: Any) -> NDArray[Any]:
    """Return y as an array: numbers [n] or [n, L] as such, everything else as objects [n]."""
    if hasattr(y, "__array__"):
        array = np.asarray(y)
    else:
        rows = list(y)
        array = np.empty(len(rows), dtype=object)
        for number, row in enumerate(rows):
            array[number] = row
    if array.dtype != object or array.ndim != 1:
        return array
    values = array.tolist()
    first = next((row for row in values if not hasattr(row, "__len__") or len(row)), None)
    if isinstance(first, str) or (isinstance(first, Sequence) and isinstance(first[0], str)):
        return array
    try:
        numbers = np.asarray(values)
    except ValueError:  # rows of different lengths
        return array
    wide = numbers.ndim == 1 or (numbers.ndim == 2 and numbers.shape[1] > 1)
    return numbers if wide and numbers.dtype.kind in "biuf" else array


def _names(values: list[Any], separator: str | None) -> Targets:
    """Read a column of strings, or lists of names."""
    if values and all(isinstance(value, str) for value in values):
        if separator is None:
            return _lists([[value] for value in values], "column")
        cut = [[part.strip() for part in value.split(separator)] for value in values]
        return _lists([[part for part in row if part] for row in cut], "joined", separator)
    if separator is not None:
        raise InputError("separator is for a column of strings, and y is none", remedy="leave separator out")
    for number, value in enumerate(values):
        if isinstance(value, str | bytes) or not isinstance(value, Iterable):
            what = f"y[{number}] is {value!r:.40}, but the labels of a text are a list of names"
            raise InputError(what, remedy='for example [["shoe", "red"], ["hat"]], or one name for every text')
    rows = [list(row) for row in values]
    if not all(isinstance(name, str) for row in rows for name in row):
        raise InputError("the labels of a text are a list of names", remedy='for example [["shoe", "red"], ["hat"]]')
    return _lists(rows, "lists")


def _numbers(array: NDArray[Any]) -> Targets:
    """Read one number for every text, the number of its class."""
    try:
        assert_all_finite(array, input_name="y")
        check_classification_targets(array)
    except ValueError as error:
        raise InputError(
            str(error).strip().splitlines()[0], remedy="give names, or whole numbers of classes"
        ) from error
    classes, columns = np.unique(array, return_inverse=True)
    ones = np.ones(len(columns), dtype=np.float32)
    relevant = sparse.csr_matrix((ones, columns, np.arange(len(columns) + 1)), shape=(len(columns), len(classes)))
    return Targets.of("column", classes, relevant)


def _lists(rows: list[list[str]], kind: Kind, separator: str | None = None) -> Targets:
    rows = [[str(name) for name in dict.fromkeys(row)] for row in rows]
    classes = sorted({name for row in rows for name in row})
    column = {name: place for place, name in enumerate(classes)}
    indptr = np.cumsum([0, *map(len, rows)])
    indices = np.fromiter((column[name] for row in rows for name in row), dtype=np.int64, count=int(indptr[-1]))
    ones = np.ones(len(indices), dtype=np.float32)
    relevant = sparse.csr_matrix((ones, indices, indptr), shape=(len(rows), len(classes)))
    return Targets.of(kind, np.array(classes, dtype=object), relevant, separator)


def _indicator(matrix: Any, kind: Kind, dtype: np.dtype[Any], columns: list[str] | None) -> Targets:
    """Read a matrix of 0 and 1."""
    values = matrix.data if kind == "sparse" else matrix
    if values.dtype.kind not in "biuf" or not np.isin(values, (0, 1)).all():
        raise InputError("y has two dimensions, but is no indicator matrix of 0 and 1")
    relevant = sparse.csr_matrix(matrix, dtype=np.float32)
    relevant.eliminate_zeros()
    relevant.sum_duplicates()
    classes = np.arange(matrix.shape[1]) if columns is None else np.array(columns, dtype=object)
    return Targets.of(kind, classes, relevant, None, dtype)
