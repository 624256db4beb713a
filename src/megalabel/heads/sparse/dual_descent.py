"""Dual coordinate descent for one squared-hinge problem per label, compiled by numba, which this file loads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from megalabel.compiled import compiled
from megalabel.split_mix import STEP, split_mix

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["solve_children", "solve_labels"]

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
    known: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]],
) -> tuple[
    NDArray[np.int64], NDArray[np.int32], NDArray[np.float32], NDArray[np.float32],
    NDArray[np.int64], NDArray[np.int64], NDArray[np.float32],
]:  # fmt: skip
    """Return sizes [labels], columns (in no order), weights and biases [labels] of the labels ``start`` to ``stop``.

    Then the duals above zero of each label: their number [labels], rows and values; a row is twice its number, and one
    more as a negative. ``known`` are those to begin with of all labels (offsets [L + 1], rows, values); only labels
    without any get random negatives.
    """
    total = len(x[0]) - 1
    place_of = np.full(columns, -1, dtype=np.int32)  # position of a feature among those of the label
    stamp = np.full(total, -1, dtype=np.int64)  # the last label that has used or excluded a row
    sizes = np.zeros(stop - start, dtype=np.int64)
    biases = np.zeros(stop - start, dtype=np.float32)
    kept, values, filled = np.empty(1024, dtype=np.int32), np.empty(1024, dtype=np.float32), 0
    dual_sizes, dual_of, size = np.zeros(stop - start, dtype=np.int64), np.zeros(2 * total, dtype=np.float32), 0
    dual_rows, duals = np.empty(1024, dtype=np.int64), np.empty(1024, dtype=np.float32)
    for label in range(start, stop):
        if positives[0][label] == positives[0][label + 1]:
            continue
        state = split_mix(split_mix(np.uint64(seed)) + np.uint64(label))
        draws = uniform if known[0][label] == known[0][label + 1] else 0  # the others have had theirs
        rows, costs, split = _choose(label, stamp, positives, negatives, excluded, cost, draws, state)
        indptr, indices, data, squares, features = _gather(rows, x, place_of)
        matrix, every = (indptr, indices, data, np.empty((len(rows), 0), dtype=np.float32)), np.arange(len(rows))
        first = np.zeros(len(rows))
        for place in range(known[0][label], known[0][label + 1]):
            dual_of[known[1][place]] = known[2][place]
        for place in range(len(rows)):
            first[place] = dual_of[2 * rows[place] + (place >= split)]
        for place in range(known[0][label], known[0][label + 1]):
            dual_of[known[1][place]] = 0
        weights = _descend(matrix, squares, len(features), every, costs, split, tolerance, passes, state, first)
        if size + len(rows) > len(duals):
            room = 2 * len(duals) + len(rows)
            dual_rows = np.concatenate((dual_rows, np.empty(room - len(duals), dtype=np.int64)))
            duals = np.concatenate((duals, np.empty(room - len(duals), dtype=np.float32)))
        for place in range(len(rows)):
            if first[place] > 0:
                dual_rows[size], duals[size] = 2 * rows[place] + (place >= split), first[place]
                size += 1
                dual_sizes[label - start] += 1
        biases[label - start] = weights[-1]
        kept, values, sizes[label - start] = _keep(weights, features, columns, prune, kept, values, filled)
        filled += sizes[label - start]
        for place in range(len(features)):
            place_of[features[place]] = -1
    some = dual_sizes, dual_rows[:size].copy(), duals[:size].copy()
    return sizes, kept[:filled].copy(), values[:filled].copy(), biases, *some


@compiled
def solve_children(
    start: int,
    stop: int,
    x: tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float32]],
    vectors: NDArray[np.float32],
    rows_of: tuple[NDArray[np.int32], NDArray[np.int32]],
    children: tuple[NDArray[np.int64], NDArray[np.int64]],
    positives: tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float32]],
    excluded: tuple[NDArray[np.int32], NDArray[np.int32]],
    columns: int,
    costs: tuple[float, float],
    seed: int,
    tolerance: float,
    passes: int,
    prune: float,
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32], NDArray[np.float32]]:
    """Train the children of the parents ``start`` to ``stop``, each on the rows of its parent.

    All children of a parent share its rows, which are gathered once. ``vectors`` [N, d] stand beside the sparse
    features; their weights follow those of the ``columns`` features and are all kept. ``children`` lists those of each
    parent, and ``costs`` are those of positive and negative rows. Results are those of :func:`solve_labels`, for the
    children in the order of the list.
    """
    place_of = np.full(columns, -1, dtype=np.int32)
    row_of = np.full(len(x[0]) - 1, -1, dtype=np.int64)  # position of a row among those of the parent
    first = children[0][start]
    sizes = np.zeros(children[0][stop] - first, dtype=np.int64)
    biases = np.zeros(len(sizes), dtype=np.float32)
    kept, values, filled = np.empty(1024, dtype=np.int32), np.empty(1024, dtype=np.float32), 0
    for parent in range(start, stop):
        rows = rows_of[1][rows_of[0][parent] : rows_of[0][parent + 1]].astype(np.int64)
        for place in range(len(rows)):
            row_of[rows[place]] = place
        indptr, indices, data, squares, features = _gather(rows, x, place_of)
        dense = vectors[rows]
        for place in range(len(rows)):
            for column in range(dense.shape[1]):
                squares[place] += float(dense[place, column]) ** 2
        matrix = (indptr, indices, data, dense)
        for slot in range(children[0][parent], children[0][parent + 1]):
            child = children[1][slot]
            if positives[0][child] == positives[0][child + 1]:
                continue
            state = split_mix(split_mix(np.uint64(seed)) + np.uint64(child))
            picks, each, split = _pick(child, len(rows), row_of, positives, excluded, costs)
            duals = np.zeros(len(picks))
            weights = _descend(matrix, squares, len(features), picks, each, split, tolerance, passes, state, duals)
            biases[slot - first] = weights[-1]
            kept, values, sizes[slot - first] = _keep(weights, features, columns, prune, kept, values, filled)
            filled += sizes[slot - first]
        for place in range(len(rows)):
            row_of[rows[place]] = -1
        for place in range(len(features)):
            place_of[features[place]] = -1
    return sizes, kept[:filled].copy(), values[:filled].copy(), biases


@compiled
def _pick(
    child: int,
    size: int,
    row_of: NDArray[np.int64],
    positives: tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float32]],
    excluded: tuple[NDArray[np.int32], NDArray[np.int32]],
    costs: tuple[float, float],
) -> tuple[NDArray[np.int64], NDArray[np.float64], int]:
    """Return the rows of a child among the ``size`` of its parent, as :func:`_choose` does for a label."""
    first, last = positives[0][child], positives[0][child + 1]
    free = np.ones(size, dtype=np.bool_)
    picks, each, filled = np.empty(size + last - first, dtype=np.int64), np.full(size + last - first, costs[1]), 0
    for place in range(excluded[0][child], excluded[0][child + 1]):
        if row_of[excluded[1][place]] >= 0:
            free[row_of[excluded[1][place]]] = False
    for place in range(first, last):
        row = row_of[positives[1][place]]
        if free[row]:
            picks[filled], each[filled] = row, costs[0] * positives[2][place]
            free[row] = False
            filled += 1
    split = filled
    for place in range(split):
        if each[place] < costs[0]:
            picks[filled], each[filled] = picks[place], costs[1] * (1 - each[place] / costs[0])
            filled += 1
    for row in range(size):
        if free[row]:
            picks[filled] = row
            filled += 1
    return picks[:filled], each[:filled], split


@compiled
def _keep(
    weights: NDArray[np.float64],
    features: NDArray[np.int32],
    columns: int,
    prune: float,
    kept: NDArray[np.int32],
    values: NDArray[np.float32],
    filled: int,
) -> tuple[NDArray[np.int32], NDArray[np.float32], int]:
    """Append the weights of at least ``prune`` to the arrays, which grow; return both and how many were kept.

    Weights behind those of the features, except the bias, are of vectors: their columns start at ``columns``.
    """
    if filled + len(weights) > len(kept):
        room = max(filled + len(weights), 2 * len(kept))
        kept = np.concatenate((kept, np.empty(room - len(kept), dtype=np.int32)))
        values = np.concatenate((values, np.empty(room - len(values), dtype=np.float32)))
    size = 0
    for place in range(len(features)):
        if abs(weights[place]) >= prune and weights[place] != 0:
            kept[filled + size], values[filled + size] = features[place], weights[place]
            size += 1
    for place in range(len(features), len(weights) - 1):
        kept[filled + size], values[filled + size] = columns + place - len(features), weights[place]
        size += 1
    return kept, values, size


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
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32], NDArray[np.float64], NDArray[np.int32]]:
    """Return the rows as a small matrix over the features they have, their squared lengths, and these features."""
    indptr = np.zeros(len(rows) + 1, dtype=np.int64)
    for row in range(len(rows)):
        indptr[row + 1] = indptr[row] + x[0][rows[row] + 1] - x[0][rows[row]]
    indices, data = np.empty(indptr[-1], dtype=np.int32), np.empty(indptr[-1], dtype=np.float32)
    squares = np.zeros(len(rows))
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
            squares[row] += float(x[2][begin + offset]) ** 2
    return indptr, indices, data, squares, features[:size]


@compiled
def _descend(
    matrix: tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32], NDArray[np.float32]],
    squares: NDArray[np.float64],
    columns: int,
    rows: NDArray[np.int64],
    costs: NDArray[np.float64],
    split: int,
    tolerance: float,
    passes: int,
    state: np.uint64,
    alpha: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return the weights [columns + d + 1] of one label, its bias last; ``alpha`` are its duals, before and after.

    ``matrix`` has ``columns`` sparse features and d dense ones. ``rows`` are the label's rows of it, each with its
    cost; those from ``split`` on are negative.

    Algorithm 1 of Hsieh et al. (ICML 2008), in random order (section 3.1) and with shrinking
    (section 3.2): rows at the bound 0 whose slope is above the largest one of the last pass
    are skipped until the others have converged.
    """
    size = len(costs)
    weights, square = np.zeros(columns + matrix[3].shape[1] + 1), np.empty(size)
    for row in range(size):  # with the bias feature, and the diagonal of the squared hinge
        square[row] = squares[rows[row]] + 1.0 + 0.5 / costs[row]
        if alpha[row] > 0:
            _add(matrix, rows[row], columns, alpha[row] if row < split else -alpha[row], weights)
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
            slope = _product(matrix, rows[row], columns, weights) * sign - 1.0 + alpha[row] * 0.5 / costs[row]
            if alpha[row] == 0.0 and slope > bar:
                active -= 1
                order[place], order[active] = order[active], order[place]
                continue
            projected = min(slope, 0.0) if alpha[row] == 0.0 else slope
            largest, smallest = max(largest, projected), min(smallest, projected)
            if abs(projected) > _TINY:
                before = alpha[row]
                alpha[row] = max(before - slope / square[row], 0.0)
                _add(matrix, rows[row], columns, (alpha[row] - before) * sign, weights)
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
    matrix: tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32], NDArray[np.float32]],
    row: int,
    columns: int,
    weights: NDArray[np.float64],
) -> float:
    """Return w.x + b of a row; four sums of every fourth dense term, so that the compiler can vectorise."""
    indptr, indices, data, dense = matrix
    product: float = weights[-1]
    for place in range(indptr[row], indptr[row + 1]):
        product += weights[indices[place]] * data[place]
    width = dense.shape[1]
    if width == 0:
        return product
    vector, own = dense[row], weights[columns:-1]
    whole = width - width % 4
    a, b, c, d = 0.0, 0.0, 0.0, 0.0
    for place in range(0, whole, 4):
        a += own[place] * np.float64(vector[place])
        b += own[place + 1] * np.float64(vector[place + 1])
        c += own[place + 2] * np.float64(vector[place + 2])
        d += own[place + 3] * np.float64(vector[place + 3])
    for place in range(whole, width):
        a += own[place] * np.float64(vector[place])
    return product + ((a + c) + (b + d))


@compiled
def _add(
    matrix: tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32], NDArray[np.float32]],
    row: int,
    columns: int,
    step: float,
    weights: NDArray[np.float64],
) -> None:
    """Add ``step`` times a row to the weights."""
    indptr, indices, data, dense = matrix
    weights[-1] += step
    for place in range(indptr[row], indptr[row + 1]):
        weights[indices[place]] += step * data[place]
    for place in range(dense.shape[1]):
        weights[columns + place] += step * dense[row, place]
