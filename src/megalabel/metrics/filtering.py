"""Remove filter pairs from rankings: they count neither as right nor as wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from megalabel.errors import DataError
from megalabel.metrics.hits import as_ids, locate
from megalabel.wording import counted

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["drop_filtered"]


def drop_filtered(
    ids: NDArray[np.integer[Any]], pairs: NDArray[np.integer[Any]], *, labels: int | None = None
) -> NDArray[np.integer[Any]]:
    """Remove (row, label) pairs from the rankings; the labels below move up.

    Filtering comes before any cut to k: a filtered label never takes up one of the k
    places. Item-to-item sets of the Extreme Classification Repository (Bhatia et al.,
    2016) need it, because the pairs are missing from their test truth.

    Args:
        ids: [N, K] label ids, best first; a short ranking ends in -1.
        pairs: [n, 2] row and label of each pair to remove, in any order.
        labels: L, to refuse pairs beyond it.

    Returns:
        [N, K] rankings, filled up with -1 at the end; ``ids`` itself is not changed.

    >>> drop_filtered(np.array([[4, 2, 7], [1, 3, 0]]), np.array([[0, 4], [1, 5]]))
    array([[ 2,  7, -1],
           [ 1,  3,  0]])
    """
    ids, pairs = as_ids(ids), np.asarray(pairs)
    if pairs.size == 0:
        return ids
    if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.dtype.kind not in "iu":
        raise DataError(
            f"filter pairs must be whole numbers [n, 2], not {pairs.dtype} {list(pairs.shape)}",
            remedy="give one row and one label per pair",
        )
    pairs = pairs.astype(np.int64, copy=False)
    limit = (len(ids), np.iinfo(np.int64).max if labels is None else labels)
    wrong = np.flatnonzero(((pairs < 0) | (pairs >= limit)).any(axis=1))
    if len(wrong):
        row, label = pairs[wrong[0]]
        size = (
            counted(len(ids), "row") if labels is None else f"{counted(len(ids), 'row')} and {counted(labels, 'label')}"
        )
        raise DataError(
            f"filter pair {wrong[0]} is (row {row}, label {label}), there are {size}", remedy="count both from 0"
        )
    pair, rank = locate(ids, pairs[:, 0], pairs[:, 1])
    touched, position = np.unique(pairs[pair, 0], return_inverse=True)
    before = ids[touched]
    keep = np.ones(before.shape, dtype=bool)
    keep[position, rank] = False
    after = np.full_like(before, -1)
    after[np.arange(ids.shape[1]) < keep.sum(axis=1)[:, None]] = before[keep]
    out = ids.copy()
    out[touched] = after
    return out
