"""One linear classifier per label, each on its own rows, and what a further training starts from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from megalabel.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from os import PathLike

    from numpy.typing import NDArray

__all__ = ["Duals", "cells_of", "train_labels", "with_rows"]

_BELOW = np.float32(-2.0)  # bias of a label without positive rows; negatives of other labels score about -1
_LABELS = 128  # labels per task


@dataclass(frozen=True)
class Duals:
    """The dual variables above zero of every label: the rows that hold its classifier in place.

    ``rows`` of a label are twice the number of the row, and one more as a negative.

    >>> duals = Duals(np.array([0, 1, 3]), np.array([3, 0, 5]), np.array([0.5, 1, 2], dtype=np.float32))
    >>> duals.negatives(3).toarray().tolist()
    [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]
    >>> duals.moved(np.array([2, 0, 1])).rows.tolist()
    [1, 4, 3]
    """

    offsets: NDArray[np.int64]  # [L + 1]
    rows: NDArray[np.int64]
    values: NDArray[np.float32]

    @classmethod
    def none(cls, labels: int) -> Duals:
        """Return those of labels that were not trained."""
        return cls(np.zeros(labels + 1, dtype=np.int64), np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float32))

    def moved(self, places: NDArray[np.int64]) -> Duals:
        """Return the same where row i has become row ``places[i]``."""
        return Duals(self.offsets, 2 * places[self.rows // 2] + self.rows % 2, self.values)

    def negatives(self, total: int) -> sparse.csr_matrix:
        """Return the pairs [total, L] of a row and a label of which it is a negative."""
        labels = np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))
        wrong = self.rows % 2 == 1
        ones = np.ones(wrong.sum(), dtype=np.float32)
        shape = total, len(self.offsets) - 1
        return sparse.csr_matrix((ones, (self.rows[wrong] // 2, labels[wrong])), shape=shape)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return named arrays to save."""
        return {"duals.offsets": self.offsets, "duals.rows": self.rows, "duals.values": self.values}

    @classmethod
    def of(cls, arrays: Mapping[str, NDArray[Any]], labels: int, folder: str | PathLike[str]) -> Duals | None:
        """Return what :meth:`arrays` returned, if it is among these arrays of a folder."""
        if "duals.rows" not in arrays:
            return None
        duals = cls(*(arrays[f"duals.{part}"] for part in ("offsets", "rows", "values")))
        size = len(duals.rows)
        if duals.offsets.shape != (labels + 1,) or duals.offsets[-1] != size or duals.values.shape != (size,):
            raise DataError("the duals do not fit the labels", path=folder, remedy="copy the folder again")
        return duals


def train_labels(
    x: sparse.csr_matrix,
    y: sparse.csr_matrix,
    negatives: sparse.csr_matrix,
    exclude: sparse.csr_matrix,
    *,
    duals: Duals,
    C: float,
    uniform: int,
    tolerance: float,
    passes: int,
    prune: float,
    seed: int,
) -> tuple[sparse.csr_matrix, NDArray[np.float32], Duals]:
    """Train every label on its positives, its negatives and some random rows.

    Args:
        x: [N, F] training rows.
        y: [N, L] relevance in (0, 1].
        negatives: [N, L] pairs of a row and a label of which it is a negative.
        exclude: [N, L] pairs that are neither right nor wrong.
        duals: the dual variables to begin with; labels that have none get random negatives.
        C: see :class:`megalabel.heads.Linear`, like the settings that follow.
        uniform: random negatives per label.
        tolerance: when to stop.
        passes: largest number of passes.
        prune: smallest weight that is kept.
        seed: random seed.

    Returns:
        Weights [L, F], biases [L] and the dual variables.
    """
    from megalabel.heads.sparse.dual_descent import solve_labels
    from megalabel.heads.sparse.in_blocks import in_blocks

    by_label = [cells.tocsc() for cells in (y, negatives, exclude)]
    # Columns by descending frequency: what a label looks up most is then close together in memory.
    column_of = np.argsort(-np.bincount(x.indices, minlength=x.shape[1]), kind="stable").astype(np.int32)
    place_of = np.empty_like(column_of)
    place_of[column_of] = np.arange(len(column_of), dtype=np.int32)
    places = place_of[x.indices]
    positives = by_label[0].indptr, by_label[0].indices, by_label[0].data
    wrong, out = ((cells.indptr, cells.indices) for cells in by_label[1:])
    known = duals.offsets, duals.rows, duals.values

    def work(first: int, last: int) -> tuple[NDArray[Any], ...]:
        return solve_labels(
            first, last, (x.indptr, places, x.data), positives, wrong, out, x.shape[1], float(C), uniform, seed,
            float(tolerance), passes, float(prune), known,
        )  # fmt: skip

    parts = in_blocks(work, y.shape[1], _LABELS, "training", unit="labels")
    sizes, columns, weights, biases, counts, rows, values = map(np.concatenate, zip(*parts, strict=True))
    biases[np.diff(by_label[0].indptr) == 0] = _BELOW
    indptr = np.concatenate([[0], np.cumsum(sizes)])
    matrix = sparse.csr_matrix((weights, column_of[columns], indptr), shape=(y.shape[1], x.shape[1]))
    matrix.sort_indices()
    return matrix, biases, Duals(np.concatenate([[0], np.cumsum(counts)]), rows, values)


def cells_of(ids: NDArray[np.int64], columns: int) -> sparse.csr_matrix:
    """Return a matrix [N, columns] with a one for each id [N, k] that is not -1.

    >>> cells_of(np.array([[2, 0], [1, -1]]), 3).toarray().tolist()
    [[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]]
    """
    real = ids >= 0
    indptr = np.concatenate([[0], np.cumsum(real.sum(axis=1))])
    cells = sparse.csr_matrix((np.ones(real.sum(), dtype=np.float32), ids[real], indptr), shape=(len(ids), columns))
    cells.sort_indices()
    return cells


def with_rows(matrix: sparse.csr_matrix, rows: NDArray[np.int64], others: sparse.csr_matrix) -> sparse.csr_matrix:
    """Return the matrix with some of its rows replaced by the others, in order.

    >>> old, new = sparse.csr_matrix(np.eye(2)), sparse.csr_matrix([[0.0, 5.0]])
    >>> with_rows(old, np.array([0]), new).toarray().tolist()
    [[0.0, 5.0], [0.0, 1.0]]
    """
    place = np.arange(matrix.shape[0])
    place[rows] = matrix.shape[0] + np.arange(len(rows))
    return sparse.csr_matrix(sparse.vstack([matrix, others], format="csr")[place])
