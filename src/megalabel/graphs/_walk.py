"""The walks of :func:`random_walk`, compiled; imported when the first one starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from megalabel.compiled import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["walk"]


@compiled
def _mix(value: np.uint64) -> np.uint64:
    """Spread every bit over all 64 (the finaliser of SplitMix64; Steele, Lea and Flood, OOPSLA 2014)."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


@compiled
def walk(
    first: int,
    last: int,
    labels: NDArray[np.int32],
    point_starts: NDArray[np.int64],
    points: NDArray[np.int32],
    label_starts: NDArray[np.int64],
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
    returned. A hop takes two numbers of SplitMix64, whose state starts from (seed, label): the high half
    of the first chooses the point, its low half the label, the second decides on a new start.
    """
    step, half = np.uint64(0x9E3779B97F4A7C15), np.uint64(32)
    low = np.uint64(0xFFFFFFFF)
    bound = np.uint64(min(reset, 1.0) * 4294967296.0)  # of 2 ** 32
    width = len(label_starts) - 1
    counts = np.zeros(width, dtype=np.int64)
    seen = np.empty(length + 1, dtype=np.int64)
    sizes = np.empty(last - first, dtype=np.int64)
    for own in range(first, last):
        row = own - first
        if label_starts[own] == label_starts[own + 1]:
            columns[row, 0], visits[row, 0], sizes[row] = own, length, 1
            continue
        state = _mix(_mix(np.uint64(seed) + step) + np.uint64(own) * step)
        here, found = own, 0
        for _ in range(length):
            state += step
            draw = _mix(state)
            start = label_starts[here]
            choice = ((draw >> half) * np.uint64(label_starts[here + 1] - start)) >> half
            point = points[start + np.int64(choice)]
            start = point_starts[point]
            choice = ((draw & low) * np.uint64(point_starts[point + 1] - start)) >> half
            here = int(labels[start + np.int64(choice)])
            if counts[here] == 0:
                seen[found] = here
                found += 1
            counts[here] += 1
            state += step
            if (_mix(state) >> half) < bound:
                here = own
        if counts[own] == 0:
            counts[own] = 1
            seen[found] = own
            found += 1
        kept = seen[:found]
        if found > top:  # one number for count and label: most visits first, then lower label, the own one before all
            keys = np.empty(found, dtype=np.int64)
            for place in range(found):
                label = kept[place]
                times = length + 1 if label == own else counts[label]
                keys[place] = -times * width + label
            keys.sort()
            for place in range(top):
                columns[row, place] = keys[place] % width
            kept = np.sort(columns[row, :top]).astype(np.int64)
        else:
            kept = np.sort(kept)
        for place in range(len(kept)):
            columns[row, place] = kept[place]
            visits[row, place] = counts[kept[place]]
        sizes[row] = len(kept)
        for place in range(found):
            counts[seen[place]] = 0
    return sizes
