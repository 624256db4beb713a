"""How the weights of a fusion are found."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from megalabel.fusion._logistic import fit_logistic
from megalabel.fusion._rows import best_first

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["features", "fit_weights", "scale_of"]

_ROUNDS = 2  # the hard candidates of the plain sum, then those of the first fit
_LEAST = 1e-6  # spread of a standardised score that is more than rounding


def fit_weights(
    columns: list[NDArray[np.float64]],
    heads: int,
    candidates: NDArray[np.int64],
    live: NDArray[np.bool_],
    truth: NDArray[np.float64],
    hard: int,
    l2: float,
) -> NDArray[np.float64]:
    """Return the weights of F features [Q, C], and a bias: [F + 1].

    Features are score and margin of each head in turn, then any others. A further one, the
    plain sum of the scores, carries what all heads share and is all but free; the penalty is on what
    each weight adds to that.
    """
    count = len(columns)
    shared = np.zeros(count)
    scores = slice(0, 2 * heads, 2)
    shared[scores] = [column[live].std() > _LEAST for column in columns[scores]]  # a constant head has nothing to share
    plain = _sum(columns, shared)
    penalty = np.r_[np.full(count, l2), 1.0, 1e-3]
    centre = np.r_[np.zeros(count), 1.0 / max(1.0, shared.sum()), 0.0]
    logits = plain
    for _ in range(_ROUNDS):
        places = best_first(np.where(live, logits, -np.inf), candidates, hard)
        cells = np.zeros_like(live)
        np.put_along_axis(cells, places, True, axis=1)
        cells &= live
        chosen = np.stack([*(column[cells] for column in columns), plain[cells], np.ones(cells.sum())], axis=1)
        found = fit_logistic(chosen, truth[cells], penalty, centre)
        weights: NDArray[np.float64] = found[:count] + found[count] * shared
        logits = _sum(columns, weights)
    return np.append(weights, found[-1])


def features(
    values: NDArray[np.float64], live: NDArray[np.bool_], mean: float, scale: float
) -> list[NDArray[np.float64]]:
    """Return z = (values - mean) / scale [Q, C] and its margin to the best of the row; 0 outside the live cells."""
    value = np.where(live, (values - mean) / scale, -np.inf)
    best = value.max(axis=1, keepdims=True, initial=-np.inf)
    away = np.subtract(value, best, out=np.zeros_like(value), where=live)
    return [np.where(live, value, 0.0), away]


def scale_of(values: NDArray[np.float64]) -> float:
    """Return the standard deviation; 1 where it is no more than rounding."""
    spread = float(values.std())
    return spread if spread > 1e-9 * float(np.abs(values).max(initial=0.0)) else 1.0


def _sum(columns: list[NDArray[np.float64]], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the weighted sum of the columns [Q, C]."""
    total = np.zeros_like(columns[0])
    for column, weight in zip(columns, weights.tolist(), strict=True):
        total += weight * column
    return total
