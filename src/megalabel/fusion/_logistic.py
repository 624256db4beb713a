"""Logistic regression with a normal prior, by Newton's method: small, exact and repeatable."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import expit

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["fit_logistic", "logistic_loss"]

_STEPS = 100
_HALVINGS = 40
_CLOSE = 1e-12  # a fall of the loss, in parts of itself, that is not worth another step


def logistic_loss(
    weights: NDArray[np.float64],
    features: NDArray[np.float64],
    targets: NDArray[np.float64],
    penalty: NDArray[np.float64],
    centre: NDArray[np.float64],
) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]:
    """Return value, gradient [F] and Hessian [F, F] of the penalised log loss.

    With z = features @ weights the value is sum_n [log(1 + e^z_n) - y_n z_n] +
    1/2 sum_f penalty_f (weights_f - centre_f)^2; targets y_n may be any share in [0, 1].
    """
    logits = features @ weights
    away = weights - centre
    value = float((np.logaddexp(0.0, logits) - targets * logits).sum() + 0.5 * (penalty * away**2).sum())
    chance = expit(logits)
    gradient = features.T @ (chance - targets) + penalty * away
    hessian = (features * (chance * (1.0 - chance))[:, None]).T @ features + np.diag(penalty)
    return value, gradient, hessian


def fit_logistic(
    features: NDArray[np.float64],
    targets: NDArray[np.float64],
    penalty: NDArray[np.float64],
    centre: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return the weights [F] with the least :func:`logistic_loss`.

    Every penalty is above 0, so that the loss is strictly convex and has one minimum;
    a step that does not lower it is halved. The same input gives the same bits.

    >>> features, targets = np.ones((4, 1)), np.array([1.0, 1.0, 1.0, 0.0])
    >>> fit_logistic(features, targets, np.array([1e-9]), np.zeros(1)).round(4)  # log(3 / 1)
    array([1.0986])
    """
    weights = centre.astype(np.float64)
    value, gradient, hessian = logistic_loss(weights, features, targets, penalty, centre)
    for _ in range(_STEPS):
        step = np.linalg.solve(hessian, gradient)
        for _ in range(_HALVINGS):
            found = logistic_loss(weights - step, features, targets, penalty, centre)
            if found[0] <= value:
                break
            step *= 0.5
        else:
            return weights  # nothing lower within rounding
        weights = weights - step
        fall, (value, gradient, hessian) = value - found[0], found
        if fall <= _CLOSE * abs(value):
            break
    return weights
