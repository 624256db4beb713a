"""Logistic regression with a normal prior, by Newton's method: exact and deterministic."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import expit

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["fit_logistic", "logistic_loss"]

_STEPS = 100
_HALVINGS = 40
_TOLERANCE = 1e-12  # stop when the loss falls by less than this share of itself


def logistic_loss(
    weights: NDArray[np.float64],
    features: NDArray[np.float64],
    targets: NDArray[np.float64],
    penalty: NDArray[np.float64],
    centre: NDArray[np.float64],
) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]:
    """Return value, gradient [F] and Hessian [F, F] of the penalised log loss.

    With z = features @ weights the value is sum_n [log(1 + e^z_n) - y_n z_n] +
    1/2 sum_f penalty_f (weights_f - centre_f)^2; targets y_n may be any value in [0, 1].
    """
    logits = features @ weights
    offset = weights - centre
    value = float((np.logaddexp(0.0, logits) - targets * logits).sum() + 0.5 * (penalty * offset**2).sum())
    probabilities = expit(logits)
    gradient = features.T @ (probabilities - targets) + penalty * offset
    hessian = (features * (probabilities * (1.0 - probabilities))[:, None]).T @ features + np.diag(penalty)
    return value, gradient, hessian


def fit_logistic(
    features: NDArray[np.float64],
    targets: NDArray[np.float64],
    penalty: NDArray[np.float64],
    centre: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return the weights [F] that minimise :func:`logistic_loss`.

    Every penalty must be above 0, so the loss is strictly convex and has one minimum.
    A step that does not lower the loss is halved. The same input gives the same bits.

    >>> features, targets = np.ones((4, 1)), np.array([1.0, 1.0, 1.0, 0.0])
    >>> fit_logistic(features, targets, np.array([1e-9]), np.zeros(1)).round(4)  # log(3 / 1)
    array([1.0986])
    """
    weights = centre.astype(np.float64)
    value, gradient, hessian = logistic_loss(weights, features, targets, penalty, centre)
    for _ in range(_STEPS):
        step = np.linalg.solve(hessian, gradient)
        for _ in range(_HALVINGS):
            after = logistic_loss(weights - step, features, targets, penalty, centre)
            if after[0] <= value:
                break
            step *= 0.5
        else:
            return weights  # no lower value within rounding
        weights = weights - step
        decrease, (value, gradient, hessian) = value - after[0], after
        if decrease <= _TOLERANCE * abs(value):
            break
    return weights
