"""The votes of neighbours for labels, compiled by numba, which this file loads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from megalabel.compiled import compiled
from megalabel.encoders._counts import sort_ascending

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["count_votes"]


@compiled
def count_votes(
    ids: NDArray[np.int64],
    weights: NDArray[np.float32],
    targets: tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float32]],
    labels: int,
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float32]]:
    """Return the sums of the targets [M, L] of neighbours ids [Q, K] by their weights, as csr with sorted columns.

    Id -1 is none. Sums are float32 in the order of the neighbours, as those of a product of sparse matrices.

    >>> one = np.ones(2, dtype=np.float32)
    >>> targets = np.array([0, 2], dtype=np.int32), np.array([3, 1], dtype=np.int32), one
    >>> [part.tolist() for part in count_votes(np.array([[0, -1]]), one[None] / 2, targets, 4)]
    [[0, 2], [1, 3], [0.5, 0.5]]
    """
    indptr = np.zeros(len(ids) + 1, dtype=np.int64)
    sums, seen = np.zeros(labels, dtype=np.float32), np.zeros(labels, dtype=np.bool_)
    found, values, size = np.empty(256, dtype=np.int32), np.empty(256, dtype=np.float32), 0
    for query in range(len(ids)):
        first = size
        for place in range(ids.shape[1]):
            row = ids[query, place]
            if row < 0:
                continue
            count = targets[0][row + 1] - targets[0][row]
            if size + count > len(found):
                room = 2 * len(found) + count
                found = np.concatenate((found, np.empty(room - len(found), dtype=np.int32)))
                values = np.concatenate((values, np.empty(room - len(values), dtype=np.float32)))
            for cell in range(targets[0][row], targets[0][row + 1]):
                label = targets[1][cell]
                sums[label] += weights[query, place] * targets[2][cell]
                if not seen[label]:
                    seen[label] = True
                    found[size] = label
                    size += 1
        sort_ascending(found[first:size])
        for place in range(first, size):
            label = found[place]
            values[place] = sums[label]
            sums[label], seen[label] = 0, False
        indptr[query + 1] = size
    return indptr.astype(np.int32), found[:size].copy(), values[:size].copy()
