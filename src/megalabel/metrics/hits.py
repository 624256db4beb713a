"""Find the ranks of the relevant labels, from which every metric is computed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from megalabel.errors import DataError, SettingError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

__all__ = ["Hits", "as_ids", "blocks", "find_hits", "locate"]

_CELLS = 1 << 17  # cells compared at once: 1 MiB of int64, so that a block stays in cache


@dataclass(frozen=True, slots=True)
class Hits:
    """Every relevant label that a ranking holds, as three parallel arrays, ordered by row.

    All metrics are sums over these arrays, so they cost the number of hits, not N x L.
    """

    row: NDArray[np.int64]  # [H] the query
    rank: NDArray[np.int64]  # [H] place in its ranking, 0 = best
    label: NDArray[np.int64]  # [H] label of the hit
    relevant: NDArray[np.int64]  # [N] number of relevant labels of each query
    truth: sparse.csr_matrix  # [N, L] relevance, without zeros or duplicates
    ids: NDArray[np.integer[Any]]  # [N, at most max_k] the rankings, cut
    max_k: int  # the largest k that can be measured

    @property
    def rows(self) -> int:
        """Number of queries N."""
        return len(self.relevant)

    @property
    def labels(self) -> int:
        """Number of labels L."""
        return int(self.truth.shape[1])

    def at(self, ks: Sequence[int]) -> NDArray[np.int64]:
        """Return ks as an array, after a check that each can be measured."""
        wrong = [k for k in ks if not 1 <= k <= self.max_k]
        if wrong:
            raise SettingError(f"cannot measure at k = {wrong[0]}", remedy=f"choose k from 1 to {self.max_k}")
        return np.asarray(ks, dtype=np.int64)


def find_hits(ids: NDArray[np.integer[Any]], truth: sparse.csr_matrix, max_k: int | None = None) -> Hits:
    """Look up every relevant label in the ranking of its query.

    Each relevant cell (i, l) is compared with the ranking of row i, in blocks of about a
    MiB: O(nnz x K) time, and memory that does not grow with N x L or N x K.

    Args:
        ids: [N, K] label ids, best first; a short ranking ends in -1.
        truth: [N, L] sparse relevance; values above 0 are relevant, whatever their size,
            and stored zeros are not.
        max_k: largest rank to look at; None means the width K. It may be
            larger than K: what a ranking does not hold is a miss.

    Raises:
        DataError: the row counts disagree, an id is not a label, a ranking has a
            duplicate label, or a ranking continues after a -1.

    >>> truth = sparse.csr_matrix([[1, 0, 1, 0], [0, 0, 0, 1]])
    >>> hits = find_hits(np.array([[0, 1, 2], [1, 0, -1]]), truth)
    >>> hits.row.tolist(), hits.rank.tolist(), hits.label.tolist()
    ([0, 0], [0, 2], [0, 2])
    """
    ids = as_ids(ids)
    truth = _binary(truth)
    if len(ids) != truth.shape[0]:
        raise DataError(
            f"{len(ids)} rankings for {truth.shape[0]} rows of truth", remedy="give one ranking per row, in row order"
        )
    max_k = ids.shape[1] if max_k is None else max_k
    ids = ids[:, :max_k]
    _check(ids, truth.shape[1])
    relevant = np.diff(truth.indptr).astype(np.int64)
    rows = np.repeat(np.arange(len(ids)), relevant)
    cell, rank = locate(ids, rows, truth.indices)
    return Hits(rows[cell], rank, truth.indices[cell].astype(np.int64), relevant, truth, ids, max_k)


def as_ids(ids: NDArray[np.integer[Any]]) -> NDArray[np.integer[Any]]:
    """Return rankings as a signed integer array [N, K], or raise an error that says what is wrong."""
    ids = np.asarray(ids)
    if ids.ndim != 2 or ids.dtype.kind not in "iu":
        raise DataError(
            f"rankings must be whole numbers [rows, k], not {ids.dtype} {list(ids.shape)}",
            remedy="give label ids, best first",
        )
    return ids if ids.dtype.kind == "i" else ids.astype(np.int64)


def locate(
    ids: NDArray[np.integer[Any]], rows: NDArray[np.integer[Any]], labels: NDArray[np.integer[Any]]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Find each pair (rows[n], labels[n]) in the rankings ``ids`` [N, K].

    Returns two parallel arrays: n of every pair in the rankings, ascending, and its rank.

    >>> locate(np.array([[5, 3], [3, 4]]), np.array([0, 1]), np.array([3, 7]))
    (array([0]), array([1]))
    """
    width = ids.shape[1]
    step = max(1, _CELLS // max(1, width))
    if labels.max(initial=0) <= np.iinfo(ids.dtype).max:  # the same type on both sides: no conversion in the loop
        labels = labels.astype(ids.dtype)
    matches = [np.empty(0, dtype=np.int64)]
    for start in range(0, len(rows) if width else 0, step):
        stop = start + step
        equal = np.take(ids, rows[start:stop], axis=0) == labels[start:stop, None]
        matches.append(np.flatnonzero(equal) + start * width)
    pair, rank = np.divmod(np.concatenate(matches), max(1, width))
    return pair, rank


def blocks(ids: NDArray[np.integer[Any]], cells: int = _CELLS) -> Iterator[tuple[int, NDArray[np.integer[Any]]]]:
    """Yield (first row, block of rows) of about that many cells each."""
    step = max(1, cells // max(1, ids.shape[1]))
    for start in range(0, len(ids), step):
        yield start, ids[start : start + step]


def _binary(truth: sparse.csr_matrix) -> sparse.csr_matrix:
    """Return a csr matrix of the cells above zero; the given one is not changed."""
    if not sparse.issparse(truth):
        raise DataError(f"the truth must be a sparse matrix, not {type(truth).__name__}", remedy="use csr_matrix")
    matrix = sparse.csr_matrix(truth)
    if not np.isfinite(matrix.data).all():
        raise DataError("the truth holds NaN or infinity", remedy="relevance lies in 0 to 1")
    if not matrix.has_canonical_format:
        matrix = matrix.copy()
        matrix.sum_duplicates()
    keep = matrix.data > 0
    if not keep.all():
        before = np.concatenate([[0], np.cumsum(keep)])
        matrix = sparse.csr_matrix(
            (np.ones(int(before[-1])), matrix.indices[keep], before[matrix.indptr]), shape=matrix.shape
        )
    return matrix


def _check(ids: NDArray[np.integer[Any]], labels: int) -> None:
    """Refuse invalid label ids, gaps and duplicates; the error names the first such row."""
    for start, block in blocks(ids):
        if block.size == 0:
            return
        least, largest = int(block.min()), int(block.max())
        if largest >= labels or least < -1:
            row, column = np.argwhere((block >= labels) | (block < -1))[0]
            raise DataError(
                f"the ranking of row {start + row} holds label {block[row, column]}, the set has {labels} labels",
                remedy=f"use ids from 0 to {labels - 1}, and -1 to fill up a short ranking",
            )
        if least == -1:
            gap = np.flatnonzero(((block[:, :-1] < 0) & (block[:, 1:] >= 0)).any(axis=1))
            if len(gap):
                raise DataError(
                    f"the ranking of row {start + gap[0]} continues after a -1",
                    remedy="put -1 only at the end of a row",
                )
        ordered = np.sort(block, axis=1)
        repeat = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)
        if repeat.any():
            row, column = np.argwhere(repeat)[0]
            raise DataError(
                f"duplicate label {ordered[row, column]} in the ranking of row {start + row}",
                remedy="predict each label at most once per row",
            )
