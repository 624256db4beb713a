"""The k best rows in a heap whose root is the worst of them, compiled by numba, which this file loads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from megalabel.compiled import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["push", "sort_heap"]


@compiled
def push(ids: NDArray[np.int64], scores: NDArray[np.float32], size: int, row: int, score: np.float32) -> int:
    """Add a row to a heap of ``size`` rows in ``ids`` and ``scores`` [k], and return its new size.

    In a full heap it takes the place of the worst row, lowest score, then highest id, if it is better.
    """
    if size < len(ids):
        _sift_up(ids, scores, size, row, score)
        return size + 1
    if score > scores[0] or (score == scores[0] and row < ids[0]):
        _sift_down(ids, scores, size, row, score)
    return size


@compiled
def sort_heap(ids: NDArray[np.int64], scores: NDArray[np.float32], size: int) -> None:
    """Sort a heap: best first, ties by ascending id."""
    for last in range(size - 1, 0, -1):  # the worst goes to the end
        row, score = ids[last], scores[last]
        ids[last], scores[last] = ids[0], scores[0]
        _sift_down(ids, scores, last, row, score)


@compiled
def _sift_up(ids: NDArray[np.int64], scores: NDArray[np.float32], place: int, row: int, score: np.float32) -> None:
    """Insert a row at the end of a heap."""
    while place > 0:
        parent = (place - 1) // 2
        if scores[parent] < score or (scores[parent] == score and ids[parent] > row):
            break
        ids[place], scores[place] = ids[parent], scores[parent]
        place = parent
    ids[place], scores[place] = row, score


@compiled
def _sift_down(ids: NDArray[np.int64], scores: NDArray[np.float32], size: int, row: int, score: np.float32) -> None:
    """Replace the root of a heap of ``size`` rows by another row."""
    place = 0
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        sibling = child + 1
        if sibling < size and (
            scores[sibling] < scores[child] or (scores[sibling] == scores[child] and ids[sibling] > ids[child])
        ):
            child = sibling
        if score < scores[child] or (score == scores[child] and row > ids[child]):
            break
        ids[place], scores[place] = ids[child], scores[child]
        place = child
    ids[place], scores[place] = row, score
