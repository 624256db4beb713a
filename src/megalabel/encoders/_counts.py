"""How often each text has each feature, compiled by numba, which this file loads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from megalabel.compiled import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["count_features", "sort_ascending"]


@compiled
def count_features(
    ids: NDArray[np.uint32], offsets: NDArray[np.int64]
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float32], NDArray[np.int32]]:
    """Return the distinct features of ragged texts, ascending in each: indptr [n + 1], features, counts, first places.

    >>> parts = count_features(np.array([7, 2, 7], dtype=np.uint32), np.array([0, 3]))
    >>> [part.tolist() for part in parts]
    [[0, 2], [2, 7], [1.0, 2.0], [1, 0]]
    """
    indptr = np.zeros(len(offsets), dtype=np.int32)
    features, counts = np.empty(len(ids), dtype=np.int32), np.empty(len(ids), dtype=np.float32)
    places, size = np.empty(len(ids), dtype=np.int32), 0
    for text in range(len(offsets) - 1):
        first, begin = offsets[text], size
        keys = np.empty(offsets[text + 1] - first, dtype=np.uint64)  # feature, then place
        for at in range(len(keys)):
            keys[at] = (np.uint64(ids[first + at]) << np.uint64(32)) | np.uint64(at)
        sort_ascending(keys)
        for at in range(len(keys)):
            feature = np.int32(keys[at] >> np.uint64(32))
            if size > begin and features[size - 1] == feature:
                counts[size - 1] += np.float32(1)
            else:
                features[size], counts[size] = feature, np.float32(1)
                places[size] = np.int32(keys[at] & np.uint64(0xFFFFFFFF))
                size += 1
        indptr[text + 1] = size
    return indptr, features[:size].copy(), counts[:size].copy(), places[:size].copy()


@compiled
def sort_ascending(keys: NDArray[Any]) -> None:
    """Sort numbers in place. Shell sort: the sort of the library takes seconds to compile."""
    gap = 1
    while gap < len(keys) // 3:
        gap = 3 * gap + 1
    while gap > 0:
        for at in range(gap, len(keys)):
            key, place = keys[at], at
            while place >= gap and keys[place - gap] > key:
                keys[place] = keys[place - gap]
                place -= gap
            keys[place] = key
        gap //= 3
