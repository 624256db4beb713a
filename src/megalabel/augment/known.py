"""Label texts that are train texts too: what train says of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

from megalabel.data.texts import find_texts, first_equal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from megalabel.data.dataset import Dataset

__all__ = ["KnownTexts", "pattern"]


@dataclass(frozen=True)
class KnownTexts:
    """The label texts that are also texts of train rows with at least one label, and their labels.

    >>> from megalabel import Dataset
    >>> data = Dataset.from_lists([("a", [1]), ("a", [2]), ("x", [0])], [("z", [0])], ["a", "b", "c"])
    >>> known = KnownTexts.find(data)
    >>> known.ids.tolist(), known.labels.toarray().tolist()[0]
    ([0], [0.0, 1.0, 1.0])
    """

    ids: NDArray[np.int64]  # [K] labels, sorted
    labels: sparse.csr_matrix  # [L, L] float32; row j: labels of the train rows of text j, of several the largest value
    filter: sparse.csr_matrix  # [L, L] int8; row j: filter pairs of these rows that are no labels, without j itself
    own: sparse.csr_matrix  # [N, L] int8; train rows of a label's text at that label

    @classmethod
    def find(cls, data: Dataset) -> KnownTexts:
        """Compare all texts, exactly."""
        train, size = data.train.without(data.train.filter), len(data.labels)
        rows, ids = _equal_pairs(train.texts, data.labels.texts)
        ones = np.ones(len(rows), dtype=np.int8)
        own: sparse.csr_matrix = sparse.csr_matrix((ones, (rows, ids)), shape=train.targets.shape)
        labels = _largest(train.targets[rows].tocoo(), ids, size)
        filtered = _largest(train.excluded()[rows].tocoo(), ids, size)
        kept = labels + sparse.identity(size, dtype=np.float32, format="csr")
        filtered = pattern(filtered - filtered.multiply(pattern(kept)))
        return cls(np.flatnonzero(np.diff(labels.indptr)), labels, filtered, own)

    def merge(self, targets: sparse.csr_matrix) -> sparse.csr_matrix:
        """Return targets [L, L] in which known texts have their labels, and themselves at 1."""
        ones = np.ones(len(self.ids), dtype=np.float32)
        itself = sparse.csr_matrix((ones, (self.ids, self.ids)), shape=targets.shape)
        other = self.labels - sparse.diags(self.labels.diagonal(), format="csr", dtype=np.float32)
        return _canonical(self.unknown(targets) + other + itself)

    def unknown(self, matrix: sparse.csr_matrix) -> sparse.csr_matrix:
        """Return the matrix [L, L] with empty rows for known texts."""
        stays = np.ones(matrix.shape[0], dtype=matrix.dtype)
        stays[self.ids] = 0
        return _canonical(sparse.diags(stays, format="csr", dtype=matrix.dtype) @ matrix)

    def pairs(self, targets: sparse.csr_matrix) -> tuple[NDArray[np.int64], NDArray[np.floating], NDArray[np.bool_]]:
        """Return the targets of known texts but for the label itself: query label, value, and whether train has it."""
        cells = targets[self.ids].tocoo()
        queries = self.ids[cells.row]
        off = queries != cells.col
        queries, columns = queries[off], cells.col[off].astype(np.int64)
        size = targets.shape[1]
        truth = self.labels.tocoo()
        true = np.isin(queries * size + columns, truth.row.astype(np.int64) * size + truth.col)
        return queries, cells.data[off], true


def _equal_pairs(texts: Sequence[str], labels: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return all pairs of a text and a label that are equal, by label, then by text.

    >>> [part.tolist() for part in _equal_pairs(["b", "a", "b"], ["c", "b", "b"])]
    [[0, 2, 0, 2], [1, 1, 2, 2]]
    """
    first = first_equal(labels)
    label = find_texts(texts, labels)
    rows = np.flatnonzero(label >= 0)
    group = first[label[rows]]  # the first label with this text
    order = np.argsort(group, kind="stable")
    rows, group = rows[order], group[order]
    starts, stops = (np.searchsorted(group, first, side=side) for side in ("left", "right"))
    ids = np.repeat(np.arange(len(first)), stops - starts)
    places = np.arange(len(ids)) - np.repeat(np.cumsum(stops - starts) - (stops - starts), stops - starts)
    return rows[np.repeat(starts, stops - starts) + places], ids


def pattern(matrix: sparse.csr_matrix) -> sparse.csr_matrix:
    """Return the non-zero cells as ones."""
    cells = _canonical(sparse.csr_matrix(matrix))
    return sparse.csr_matrix((np.ones(cells.nnz, dtype=np.int8), cells.indices, cells.indptr), shape=cells.shape)


def _canonical(matrix: sparse.csr_matrix) -> sparse.csr_matrix:
    matrix = sparse.csr_matrix(matrix)
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    return matrix


def _largest(cells: sparse.coo_matrix, label: NDArray[np.int64], size: int) -> sparse.csr_matrix:
    """Return [L, L] float32 from rows of these labels; where a label has several, the largest value."""
    key = label[cells.row] * size + cells.col
    order = np.lexsort((-cells.data, key))
    key, first = np.unique(key[order], return_index=True)
    return sparse.csr_matrix(
        (cells.data[order][first].astype(np.float32), (key // size, key % size)), shape=(size, size)
    )
