"""The inner loops of a search, compiled by numba, which this file loads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from megalabel.compiled import compiled, compiled_sums

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["INF", "collect", "cut", "decide", "multiply", "product", "rank", "sort_best", "widen"]

_STEP = 64  # scores compared at once
INF = np.float32(np.inf)


@compiled
def collect(
    scores: NDArray[np.float32],
    start: int,
    keep: int,
    bars: NDArray[np.float32],
    sizes: NDArray[np.int64],
    best: NDArray[np.float32],
    ids: NDArray[np.int64],
    first: int,
    last: int,
) -> None:
    """Add scores that may be among the ``keep`` best to ``best`` and ``ids`` [Q, room], for rows ``first`` to ``last``.

    ``scores`` [Q, n] are those of labels ``start`` on; a score must be above ``bars`` [Q]; ``sizes`` [Q] counts the
    candidates. A full row is cut to its ``keep`` best, and its bar raised to the worst of them.
    """
    count, room = scores.shape[1], best.shape[1]
    for query in range(first, last):
        row, bar, size = scores[query], bars[query], sizes[query]
        for low in range(0, count, _STEP):
            high = min(low + _STEP, count)
            above = False
            for i in range(low, high):  # no branch inside, so that the compiler can vectorise
                above |= row[i] > bar
            if not above:
                continue
            for i in range(low, high):
                if row[i] > bar:
                    if size == room:
                        bar, size = cut(best[query], ids[query], size, keep), keep
                        if row[i] <= bar:
                            continue
                    best[query, size], ids[query, size] = row[i], start + i
                    size += 1
        bars[query], sizes[query] = bar, size


@compiled
def decide(
    labels: NDArray[np.float32],
    queries: NDArray[np.float32],
    margins: NDArray[np.float32],
    k: int,
    keep: int,
    sizes: NDArray[np.int64],
    best: NDArray[np.float32],
    ids: NDArray[np.int64],
    scores: NDArray[np.float32],
    top_ids: NDArray[np.int64],
    crowded: NDArray[np.bool_],
    first: int,
    last: int,
) -> None:
    """Fill rows ``first`` to ``last`` of scores and ids [Q, k] from the candidates of :func:`collect`.

    Candidates at most the margin below the k-th score are scored again exactly. If even the worst of ``keep`` is that
    close, others may have been missed: the row is crowded and not filled.
    """
    for query in range(first, last):
        rough, held, size = best[query], ids[query], sizes[query]
        if size > keep:
            cut(rough, held, size, keep)
            size = keep
        floor = -INF
        if size > k:
            floor = cut(rough, held, size, k) - margins[query]
        crowded[query] = size == keep and keep < len(labels)
        for i in range(size):
            crowded[query] &= not rough[i] < floor
        if crowded[query]:
            continue
        near = 0
        for i in range(size):
            if not rough[i] < floor:
                rough[near], held[near] = product(labels[held[i]], queries[query]), held[i]
                near += 1
        sort_best(rough[:near], held[:near], scores[query], top_ids[query])


@compiled
def multiply(
    labels: NDArray[np.float32],
    queries: NDArray[np.float32],
    candidates: NDArray[np.int64],
    scores: NDArray[np.float32],
    first: int,
    last: int,
) -> None:
    """Fill rows ``first`` to ``last`` of the scores [Q, C] of candidates, rounded as in a search; -1 has -inf."""
    for query in range(first, last):
        for place in range(candidates.shape[1]):
            label = candidates[query, place]
            scores[query, place] = -INF if label < 0 else product(labels[label], queries[query])


@compiled
def rank(
    labels: NDArray[np.float32],
    queries: NDArray[np.float32],
    proposed: NDArray[np.int64],
    scores: NDArray[np.float32],
    top_ids: NDArray[np.int64],
    sizes: NDArray[np.int64],
    first: int,
    last: int,
) -> None:
    """Fill rows ``first`` to ``last`` of scores and ids [Q, k] with the best of the candidates [Q, n]; -1 is none.

    ``sizes`` [Q] is filled with the number of candidates.
    """
    best = np.empty(proposed.shape[1], dtype=np.float32)
    ids = np.empty(proposed.shape[1], dtype=np.int64)
    for query in range(first, last):
        size = 0
        for label in proposed[query]:
            if label >= 0:
                best[size], ids[size] = product(labels[label], queries[query]), label
                size += 1
        sizes[query] = size
        sort_best(best[:size], ids[:size], scores[query], top_ids[query])


@compiled
def widen(
    centres: NDArray[np.float32],
    starts: NDArray[np.int64],
    queries: NDArray[np.float32],
    beam: NDArray[np.int64],
    scores: NDArray[np.float32],
    top_ids: NDArray[np.int64],
    first: int,
    last: int,
) -> None:
    """Fill rows ``first`` to ``last`` of scores and ids [Q, w] with the best children of the nodes [Q, b] of a beam.

    The children of node n are ``starts[n]`` to ``starts[n + 1]``, with one row of ``centres`` each; node -1 is none.
    """
    best, ids = np.empty(len(centres), dtype=np.float32), np.empty(len(centres), dtype=np.int64)
    for query in range(first, last):
        size = 0
        for node in beam[query]:
            if node >= 0:
                for child in range(starts[node], starts[node + 1]):
                    best[size], ids[size] = product(centres[child], queries[query]), child
                    size += 1
        if size > len(top_ids[query]):
            cut(best, ids, size, len(top_ids[query]))
            size = len(top_ids[query])
        sort_best(best[:size], ids[:size], scores[query], top_ids[query])


@compiled
def cut(scores: NDArray[np.float32], ids: NDArray[np.int64], size: int, keep: int) -> np.float32:
    """Move the ``keep`` best of ``size`` to the front, in any order except that the worst is last; return the worst."""
    low, high = 0, size - 1
    while low < high:
        middle, left, right = scores[(low + high) // 2], low, high
        while left <= right:
            while scores[left] > middle:
                left += 1
            while scores[right] < middle:
                right -= 1
            if left <= right:
                scores[left], scores[right] = scores[right], scores[left]
                ids[left], ids[right] = ids[right], ids[left]
                left, right = left + 1, right - 1
        if keep - 1 <= right:
            high = right
        elif keep - 1 >= left:
            low = left
        else:
            break
    worst: np.float32 = scores[keep - 1]
    return worst


@compiled
def sort_best(
    scores: NDArray[np.float32], ids: NDArray[np.int64], best: NDArray[np.float32], top_ids: NDArray[np.int64]
) -> None:
    """Fill best and top_ids [k] by descending score, ties by ascending id; padded with -inf and -1.

    Shell sort: the sort of the library takes seconds to compile.
    """
    gap = 1
    while gap < len(scores) // 3:
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(gap, len(scores)):
            score, label, at = scores[i], ids[i], i
            while at >= gap:
                other = at - gap
                if scores[other] > score or (scores[other] == score and ids[other] < label):
                    break
                scores[at], ids[at] = scores[other], ids[other]
                at = other
            scores[at], ids[at] = score, label
        gap //= 3
    for i in range(len(best)):
        if i < len(scores):
            best[i], top_ids[i] = scores[i], ids[i]
        else:
            best[i], top_ids[i] = -INF, -1


@compiled_sums
def product(one: NDArray[np.float32], other: NDArray[np.float32]) -> np.float32:
    """Return the product of two vectors, summed in float64 and rounded."""
    total = 0.0
    for at in range(len(one)):
        total += np.float64(one[at]) * np.float64(other[at])
    return np.float32(total)
