import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from megalabel.fusion.logistic import fit_logistic, logistic_loss


def problem(seed, points=60, count=4):
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(points, count)) * rng.uniform(0.2, 3, count)
    targets = rng.choice([0.0, 0.3, 1.0], points)  # soft ones too
    return features, targets, rng.uniform(0.1, 5, count), rng.normal(size=count)


@given(st.integers(0, 10**6))
@settings(max_examples=20)
def test_gradient_and_hessian_equal_finite_differences(seed):
    features, targets, penalty, centre = problem(seed)
    weights, step = np.random.default_rng(seed + 1).normal(size=4), 1e-5
    _, gradient, hessian = logistic_loss(weights, features, targets, penalty, centre)
    for i, unit in enumerate(np.eye(4) * step):
        up = logistic_loss(weights + unit, features, targets, penalty, centre)
        down = logistic_loss(weights - unit, features, targets, penalty, centre)
        assert (up[0] - down[0]) / (2 * step) == pytest.approx(gradient[i], rel=1e-5, abs=1e-5)
        np.testing.assert_allclose((up[1] - down[1]) / (2 * step), hessian[i], rtol=1e-5, atol=1e-5)


@given(st.integers(0, 10**6))
@settings(max_examples=20)
def test_finds_the_minimum(seed):
    given_ = problem(seed)
    weights = fit_logistic(*given_)
    value, gradient, _ = logistic_loss(weights, *given_)
    assert np.abs(gradient).max() < 1e-5
    other = minimize(lambda w: logistic_loss(w, *given_)[:2], np.zeros(4), jac=True, method="L-BFGS-B")
    assert value <= other.fun + 1e-9


def test_separable_targets_give_finite_weights():
    features = np.array([[-2.0, 1], [-1, 1], [1, 1], [2, 1]])
    weights = fit_logistic(features, np.array([0.0, 0, 1, 1]), np.full(2, 1e-3), np.zeros(2))
    assert np.isfinite(weights).all() and 3 < weights[0] < 30


def test_large_scores_do_not_overflow():
    with np.errstate(all="raise", under="ignore"):
        weights = fit_logistic(np.array([[1e4], [-1e4]]), np.array([0.0, 1.0]), np.array([1e-3]), np.array([1.0]))
    assert weights[0] < 0
