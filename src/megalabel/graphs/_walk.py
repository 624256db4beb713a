"""The walks of :func:`random_walk`, compiled; imported when the first one starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from megalabel.compiled import compiled
from megalabel.split_mix import STEP, split_mix

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["walk"]

_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)


@compiled
def walk(
    first: int,
    last: int,
    labels: NDArray[np.integer],
    point_starts: NDArray[np.integer],
    points: NDArray[np.integer],
    label_starts: NDArray[np.integer],
    length: int,
    reset: float,
    top: int,
    seed: int,
    columns: NDArray[np.int32],
    visits: NDArray[np.float32],
) -> NDArray[np.int64]:
    """Walk from each label of [first, last); write its most visited labels and their visits, by ascending label.

    ``labels`` and ``point_starts`` hold the labels of each point, ``points`` and
    ``label_starts`` the points of each label. Rows of ``columns`` and ``visits``
    [last - first, top] are filled from the left; the number of filled cells per row is
    returned.
    """
    width = len(label_starts) - 1
    counts, seen = np.zeros(width, dtype=np.int64), np.empty(length + 1, dtype=np.int64)
    draws, again = np.empty(length, dtype=np.uint64), np.ones(length + 1, dtype=np.bool_)
    ends, sizes = np.empty(length, dtype=np.int64), np.empty(last - first, dtype=np.int64)
    for origin in range(first, last):
        row = origin - first
        if label_starts[origin] == label_starts[origin + 1]:
            columns[row, 0], visits[row, 0], sizes[row] = origin, length, 1
            continue
        _draw(origin, seed, reset, draws, again)
        _hop(origin, draws, again, labels, point_starts, points, label_starts, ends)
        distinct = 0
        for hop in range(length):
            label = ends[hop]
            if counts[label] == 0:
                seen[distinct] = label
                distinct += 1
            counts[label] += 1
        if counts[origin] == 0:
            counts[origin] = 1
            seen[distinct] = origin
            distinct += 1
        kept = _most_visited(origin, seen[:distinct], counts, length, top)
        for i in range(len(kept)):
            columns[row, i] = kept[i]
            visits[row, i] = counts[kept[i]]
        sizes[row] = len(kept)
        for i in range(distinct):
            counts[seen[i]] = 0
    return sizes


@compiled
def _draw(origin: int, seed: int, reset: float, draws: NDArray[np.uint64], again: NDArray[np.bool_]) -> None:
    """Draw two numbers of SplitMix64 for each hop: where it goes, and whether the next starts from the first label.

    The state starts from (seed, label).
    """
    bound = np.uint64(min(reset, 1.0) * 4294967296.0)  # of 2 ** 32
    state = split_mix(split_mix(np.uint64(seed) + STEP) + np.uint64(origin) * STEP)
    for hop in range(len(draws)):
        state += STEP
        draws[hop] = split_mix(state)
        state += STEP
        again[hop + 1] = (split_mix(state) >> _HALF) < bound


@compiled
def _hop(
    origin: int,
    draws: NDArray[np.uint64],
    again: NDArray[np.bool_],
    labels: NDArray[np.integer],
    point_starts: NDArray[np.integer],
    points: NDArray[np.integer],
    label_starts: NDArray[np.integer],
    ends: NDArray[np.int64],
) -> None:
    """Write where each hop ends: the high half of its number chooses a point, the low half one of its labels.

    Hops from the first label are independent; they run in two sweeps, so that memory reads
    overlap. Hops that continue from the end of the previous one follow one by one.
    """
    start, stop = label_starts[origin], label_starts[origin + 1]
    for hop in range(len(draws)):
        ends[hop] = points[_choose(draws[hop] >> _HALF, start, stop)]
    for hop in range(len(draws)):
        point = ends[hop]
        ends[hop] = labels[_choose(draws[hop] & _LOW, point_starts[point], point_starts[point + 1])]
    for hop in range(1, len(draws)):
        if not again[hop]:
            label = ends[hop - 1]
            point = points[_choose(draws[hop] >> _HALF, label_starts[label], label_starts[label + 1])]
            ends[hop] = labels[_choose(draws[hop] & _LOW, point_starts[point], point_starts[point + 1])]


@compiled
def _choose(draw: np.uint64, start: int, stop: int) -> int:
    """Return a position in [start, stop) chosen by a 32-bit number."""
    return start + np.int64((draw * np.uint64(stop - start)) >> _HALF)  # type: ignore[return-value]


@compiled
def _most_visited(
    origin: int, seen: NDArray[np.int64], counts: NDArray[np.int64], length: int, top: int
) -> NDArray[np.int64]:
    """Return the ``top`` most visited labels, ties to the lower one; the origin is always among them."""
    if len(seen) <= top:
        return np.sort(seen)
    width = len(counts)
    keys = np.empty(len(seen), dtype=np.int64)  # one number for count and label
    for i in range(len(seen)):
        label = seen[i]
        times = length + 1 if label == origin else counts[label]
        keys[i] = -times * width + label
    keys.sort()
    return np.sort(keys[:top] % width)
