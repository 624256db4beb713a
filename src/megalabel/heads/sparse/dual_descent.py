"""Dual coordinate descent for one squared-hinge problem per label, compiled by numba, which this file loads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from megalabel.compiled import compiled
from megalabel.split_mix import STEP, split_mix

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["solve_labels"]

_TINY = 1e-12


@compiled
def solve_labels(
    start: int,
    stop: int,
    x: tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float32]],
    positives: tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float32]],
    negatives: tuple[NDArray[np.int32], NDArray[np.int32]],
    excluded: tuple[NDArray[np.int32], NDArray[np.int32]],
    columns: int,
    cost: float,
    uniform: int,
    seed: int,
    tolerance: float,
    passes: int,
    prune: float,
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32], NDArray[np.float32]]:
    """Return sizes [labels], columns (in no order), weights and biases [labels] of the labels ``start`` to ``stop``."""
    total = len(x[0]) - 1
    place_of = np.full(columns, -1, dtype=np.int32)  # position of a feature among those of the label
    stamp = np.full(total, -1, dtype=np.int64)  # the last label that has used or excluded a row
    sizes = np.zeros(stop - start, dtype=np.int64)
    biases = np.zeros(stop - start, dtype=np.float32)
    kept, values, filled = np.empty(1024, dtype=np.int32), np.empty(1024, dtype=np.float32), 0
    for label in range(start, stop):
        if positives[0][label] == positives[0][label + 1]:
            continue
        state = split_mix(split_mix(np.uint64(seed)) + np.uint64(label))
        rows, upper, split = _choose(label, stamp, positives, negatives, excluded, cost, uniform, state)
        indptr, indices, data, features = _gather(rows, x, place_of)
        weights = _descend(indptr, indices, data, len(features), upper, split, tolerance, passes, state)
        biases[label - start] = weights[-1]
        if filled + len(features) > len(kept):
            room = max(filled + len(features), 2 * len(kept))
            kept = np.concatenate((kept, np.empty(room - len(kept), dtype=np.int32)))
            values = np.concatenate((values, np.empty(room - len(values), dtype=np.float32)))
        for place in range(len(features)):
            place_of[features[place]] = -1
            if abs(weights[place]) >= prune and weights[place] != 0:
                kept[filled], values[filled] = features[place], weights[place]
                filled += 1
                sizes[label - start] += 1
    return sizes, kept[:filled].copy(), values[:filled].copy(), biases


@compiled
def _choose(
    label: int,
    stamp: NDArray[np.int64],
    positives: tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float32]],
    negatives: tuple[NDArray[np.int32], NDArray[np.int32]],
    excluded: tuple[NDArray[np.int32], NDArray[np.int32]],
    cost: float,
    uniform: int,
    state: np.uint64,
) -> tuple[NDArray[np.int64], NDArray[np.float64], int]:
    """Return the rows of a label, positives first, the cost of each, and how many are positive.

    A row with relevance y below 1 occurs twice: as a positive of cost y and as a negative of cost 1 - y.
    """
    first, last = positives[0][label], positives[0][label + 1]
    draws = max(uniform, last - first) if uniform > 0 else 0
    capacity = 2 * (last - first) + negatives[0][label + 1] - negatives[0][label] + draws
    rows, costs, size = np.empty(capacity, dtype=np.int64), np.full(capacity, cost), 0
    for place in range(excluded[0][label], excluded[0][label + 1]):
        stamp[excluded[1][place]] = label
    for place in range(first, last):
        if stamp[positives[1][place]] != label:
            rows[size], costs[size] = positives[1][place], cost * positives[2][place]
            stamp[rows[size]] = label
            size += 1
    split = size
    for place in range(split):
        if costs[place] < cost:
            rows[size], costs[size] = rows[place], cost - costs[place]
            size += 1
    for place in range(negatives[0][label], negatives[0][label + 1]):
        if stamp[negatives[1][place]] != label:
            rows[size] = negatives[1][place]
            stamp[rows[size]] = label
            size += 1
    for _ in range(draws):
        state += STEP
        row = np.int64(split_mix(state) % np.uint64(len(stamp)))
        if stamp[row] != label:
            rows[size] = row
            stamp[row] = label
            size += 1
    return rows[:size], costs[:size], split


@compiled
def _gather(
    rows: NDArray[np.int64],
    x: tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float32]],
    place_of: NDArray[np.int32],
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32], NDArray[np.int32]]:
    """Return the rows as a small matrix over the features they have, and these features."""
    indptr = np.zeros(len(rows) + 1, dtype=np.int64)
    for row in range(len(rows)):
        indptr[row + 1] = indptr[row] + x[0][rows[row] + 1] - x[0][rows[row]]
    indices, data = np.empty(indptr[-1], dtype=np.int32), np.empty(indptr[-1], dtype=np.float32)
    features, size = np.empty(indptr[-1], dtype=np.int32), 0
    for row in range(len(rows)):
        begin = x[0][rows[row]]
        for offset in range(indptr[row + 1] - indptr[row]):
            feature = x[1][begin + offset]
            if place_of[feature] < 0:
                place_of[feature] = size
                features[size] = feature
                size += 1
            indices[indptr[row] + offset] = place_of[feature]
            data[indptr[row] + offset] = x[2][begin + offset]
    return indptr, indices, data, features[:size]


@compiled
def _descend(
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    data: NDArray[np.float32],
    columns: int,
    costs: NDArray[np.float64],
    split: int,
    tolerance: float,
    passes: int,
    state: np.uint64,
) -> NDArray[np.float64]:
    """Return the weights [columns + 1] of one label, its bias last; rows from ``split`` on are negative.

    Algorithm 1 of Hsieh et al. (ICML 2008), in random order (section 3.1) and with shrinking
    (section 3.2): rows at the bound 0 whose slope is above the largest one of the last pass
    are skipped until the others have converged.
    """
    size = len(costs)
    weights, alpha, square = np.zeros(columns + 1), np.zeros(size), np.empty(size)
    for row in range(size):
        square[row] = 1.0 + 0.5 / costs[row]  # of the bias feature, and the diagonal of the squared hinge
        for place in range(indptr[row], indptr[row + 1]):
            square[row] += float(data[place]) ** 2
    order, active, bar = np.arange(size), size, np.inf
    for _ in range(passes):
        largest, smallest = -np.inf, np.inf
        for place in range(active):
            state += STEP
            other = place + np.int64(split_mix(state) % np.uint64(active - place))
            order[place], order[other] = order[other], order[place]
        place = 0
        while place < active:
            row = order[place]
            sign = 1.0 if row < split else -1.0
            slope = _product(indptr, indices, data, row, weights) * sign - 1.0 + alpha[row] * 0.5 / costs[row]
            if alpha[row] == 0.0 and slope > bar:
                active -= 1
                order[place], order[active] = order[active], order[place]
                continue
            projected = min(slope, 0.0) if alpha[row] == 0.0 else slope
            largest, smallest = max(largest, projected), min(smallest, projected)
            if abs(projected) > _TINY:
                before = alpha[row]
                alpha[row] = max(before - slope / square[row], 0.0)
                _add(indptr, indices, data, row, (alpha[row] - before) * sign, weights)
            place += 1
        if largest - smallest <= tolerance:
            if active == size:
                break
            active, bar = size, np.inf
        else:
            bar = largest if largest > 0 else np.inf
    return weights


@compiled
def _product(
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    data: NDArray[np.float32],
    row: int,
    weights: NDArray[np.float64],
) -> float:
    """Return w.x + b of a row."""
    product: float = weights[-1]
    for place in range(indptr[row], indptr[row + 1]):
        product += weights[indices[place]] * data[place]
    return product


@compiled
def _add(
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    data: NDArray[np.float32],
    row: int,
    step: float,
    weights: NDArray[np.float64],
) -> None:
    """Add ``step`` times a row to the weights."""
    weights[-1] += step
    for place in range(indptr[row], indptr[row + 1]):
        weights[indices[place]] += step * data[place]
