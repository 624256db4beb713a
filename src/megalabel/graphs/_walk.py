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
    """Walk from each label of [first, last); write its most visited labels and how often, by rising label.

    ``labels`` and ``point_starts`` hold the labels of each point, ``points`` and
    ``label_starts`` the points of each label. Rows of ``columns`` and ``visits``
    [last - first, top] are filled from the left; how many cells of each count is
    returned.
    """
    width = len(label_starts) - 1
    counts, seen = np.zeros(width, dtype=np.int64), np.empty(length + 1, dtype=np.int64)
    draws, again = np.empty(length, dtype=np.uint64), np.ones(length + 1, dtype=np.bool_)
    ends, sizes = np.empty(length, dtype=np.int64), np.empty(last - first, dtype=np.int64)
    for own in range(first, last):
        row = own - first
        if label_starts[own] == label_starts[own + 1]:
            columns[row, 0], visits[row, 0], sizes[row] = own, length, 1
            continue
        _draw(own, seed, reset, draws, again)
        _hop(own, draws, again, labels, point_starts, points, label_starts, ends)
        distinct = 0
        for hop in range(length):
            label = ends[hop]
            if counts[label] == 0:
                seen[distinct] = label
                distinct += 1
            counts[label] += 1
        if counts[own] == 0:
            counts[own] = 1
            seen[distinct] = own
            distinct += 1
        kept = _most_visited(own, seen[:distinct], counts, length, top)
        for i in range(len(kept)):
            columns[row, i] = kept[i]
            visits[row, i] = counts[kept[i]]
        sizes[row] = len(kept)
        for i in range(distinct):
            counts[seen[i]] = 0
    return sizes


@compiled
def _draw(own: int, seed: int, reset: float, draws: NDArray[np.uint64], again: NDArray[np.bool_]) -> None:
    """Draw two numbers of SplitMix64 for each hop: where it goes, and whether the next starts from the first label.

    The state starts from (seed, label).
    """
    bound = np.uint64(min(reset, 1.0) * 4294967296.0)  # of 2 ** 32
    state = split_mix(split_mix(np.uint64(seed) + STEP) + np.uint64(own) * STEP)
    for hop in range(len(draws)):
        state += STEP
        draws[hop] = split_mix(state)
        state += STEP
        again[hop + 1] = (split_mix(state) >> _HALF) < bound


@compiled
def _hop(
    own: int,
    draws: NDArray[np.uint64],
    again: NDArray[np.bool_],
    labels: NDArray[np.integer],
    point_starts: NDArray[np.integer],
    points: NDArray[np.integer],
    label_starts: NDArray[np.integer],
    ends: NDArray[np.int64],
) -> None:
    """Write where each hop ends: the high half of its number chooses a point, the low half one of its labels.

    Hops from the first label do not wait for one another; they are done in two sweeps, so that
    reads from memory overlap. Then come, one by one, those that go on from where the last one ended.
    """
    start, stop = label_starts[own], label_starts[own + 1]
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
    """Return a place in [start, stop) by a number of 32 bits."""
    return start + np.int64((draw * np.uint64(stop - start)) >> _HALF)  # type: ignore[return-value]


@compiled
def _most_visited(
    own: int, seen: NDArray[np.int64], counts: NDArray[np.int64], length: int, top: int
) -> NDArray[np.int64]:
    """Return the ``top`` labels of most visits, of equal ones the lower; the own one is always among them."""
    if len(seen) <= top:
        return np.sort(seen)
    width = len(counts)
    keys = np.empty(len(seen), dtype=np.int64)  # one number for count and label
    for i in range(len(seen)):
        label = seen[i]
        times = length + 1 if label == own else counts[label]
        keys[i] = -times * width + label
    keys.sort()
    return np.sort(keys[:top] % width)
