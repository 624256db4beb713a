import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit

from megalabel.errors import DataError, SettingError
from megalabel.fusion import Calibration, expected_calibration_error


def rows(seed=0, queries=2_000, width=12, slope=1.5, shift=-2.0):
    """Scores whose log-odds are known, and targets drawn from them."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(queries, width)) + rng.normal(size=(queries, 1))
    chance = expit(slope * scores + shift)
    return scores, chance, (rng.random(chance.shape) < chance).astype(np.float64)


def test_recovers_known_probabilities():
    scores, chance, targets = rows()
    probabilities = Calibration.fit(scores, targets).probabilities(scores)
    assert np.abs(probabilities - chance).mean() < 0.01
    assert expected_calibration_error(probabilities, targets) < 0.01


def test_recovers_place_and_bend():
    """A truth in which the best of a row is right more often than its score tells."""
    rng = np.random.default_rng(1)
    scores = np.sort(rng.normal(size=(4_000, 30)), axis=1)[:, ::-1]
    chance = expit(0.8 * scores - 1.0 * np.log1p(np.arange(30)))
    targets = (rng.random(chance.shape) < chance).astype(np.float64)
    fitted = Calibration.fit(scores, targets)
    probabilities = fitted.probabilities(scores)
    straight = Calibration(fitted.slope, fitted.shift).probabilities(scores)
    for k in (1, 5, 30):
        assert expected_calibration_error(probabilities[:, :k], targets[:, :k]) < 0.015
    assert expected_calibration_error(straight[:, :1], targets[:, :1]) > 0.05
    assert fitted.place > 0.5


@given(st.integers(0, 10**6), st.booleans(), st.sampled_from([1, 2, 7]))
@settings(max_examples=40, deadline=None)
def test_never_changes_the_order(seed, against, width):
    rng = np.random.default_rng(seed)
    scores = rng.integers(-4, 5, (6, width)).astype(np.float64)  # many ties
    targets = (rng.random(scores.shape) < expit((-3 if against else 3) * scores)).astype(np.float64)
    targets[0, 0] = 1.0
    odds = Calibration.fit(scores, targets).log_odds(scores)
    for row, row_odds in zip(scores, odds, strict=True):
        assert (np.sign(row[:, None] - row) == np.sign(row_odds[:, None] - row_odds)).all()


def test_scale_and_shift_of_the_scores_do_not_matter():
    scores, _, targets = rows(queries=200)
    first = Calibration.fit(scores, targets).probabilities(scores)
    moved = 40.0 * scores + 7.0
    np.testing.assert_allclose(Calibration.fit(moved, targets).probabilities(moved), first, atol=1e-6)


def test_cells_without_a_candidate_do_not_count():
    scores, _, targets = rows(queries=300)
    wide = np.concatenate([scores, np.full((300, 2), -np.inf), np.full((300, 1), np.nan)], axis=1)
    truth = np.concatenate([targets, np.ones((300, 3))], axis=1)
    assert Calibration.fit(wide, truth) == Calibration.fit(scores, targets)
    assert (Calibration.fit(wide, truth).probabilities(wide)[:, -3:] == 0).all()


def test_few_rows_and_equal_scores():
    one = Calibration.fit(np.array([[2.0, 1.0]]), np.array([[1.0, 0.0]])).probabilities(np.array([[2.0, 1.0]]))
    assert 0.5 < one[0, 0] < 0.95 and one[0, 1] < one[0, 0]
    same = Calibration.fit(np.zeros((50, 4)), np.tile([1.0, 0, 0, 0], (50, 1))).probabilities(np.zeros((1, 4)))
    np.testing.assert_allclose(same, 0.25, atol=0.02)


def test_soft_targets():
    fitted = Calibration.fit(np.zeros((400, 1)), np.full((400, 1), 0.3))
    assert fitted.probabilities(np.zeros((1, 1)))[0, 0] == pytest.approx(0.3, abs=0.01)


def test_json_round_trip():
    scores, _, targets = rows(queries=50)
    fitted = Calibration.fit(scores, targets)
    assert Calibration.from_dict(json.loads(json.dumps(fitted.to_dict()))) == fitted


@pytest.mark.parametrize(
    "change", [{"slope": "1"}, {"slope": 0.0}, {"bias": float("nan")}, {"place": -1.0}, {"line": True}, {"more": 1.0}]
)
def test_broken_json(change):
    with pytest.raises(DataError):
        Calibration.from_dict({**Calibration(1.0, 0.0).to_dict(), **change})
    with pytest.raises(DataError):
        Calibration.from_dict([1.0])


def test_mistakes():
    scores = np.zeros((2, 3))
    with pytest.raises(DataError, match="no candidate is relevant"):
        Calibration.fit(scores, scores)
    with pytest.raises(DataError, match="for scores"):
        Calibration.fit(scores, np.ones((2, 2)))
    with pytest.raises(DataError, match="lie in"):
        Calibration.fit(scores, scores + 2)
    with pytest.raises(DataError, match="infinite"):
        Calibration.fit(scores + np.inf, scores + 1)
    with pytest.raises(DataError, match="candidates"):
        Calibration(1.0, 0.0).probabilities(np.zeros(3))


def test_error_of_known_cells():
    chance, truth = np.array([[0.95, 0.85], [0.05, 1.0]]), np.array([[1.0, 0.0], [0.0, 1.0]])
    # bins of a tenth: (0.95, 1.0) together off by 0.05, 0.85 alone off by 0.85, 0.05 off by 0.05
    assert expected_calibration_error(chance, truth, bins=10) == pytest.approx((0.05 + 0.85 + 0.05) / 4)
    assert expected_calibration_error(truth, truth) == 0.0
    with pytest.raises(DataError):
        expected_calibration_error(np.array([1.2]), np.array([1.0]))
    with pytest.raises(DataError):
        expected_calibration_error(np.array([]), np.array([]))
    with pytest.raises(SettingError):
        expected_calibration_error(truth, truth, bins=0)


def test_equals_the_formula():
    calibration = Calibration(1.3, -0.2, 0.8, 0.4, 0.7, 0.1)
    scores = np.array([[2.0, 2.0, 1.0, -np.inf, -30.0], [np.nan, 0.5, 40.0, 0.5, 0.25]])
    ranks = np.array([[0, 0, 2, 0, 3], [0, 1, 0, 1, 3]])
    logits = 1.3 * np.where(np.isfinite(scores), scores, 0) - 0.2
    want = 0.8 * logits + 0.4 * np.log(expit(logits)) - 0.7 * np.log1p(ranks) + 0.1
    want[~np.isfinite(scores)] = -np.inf
    np.testing.assert_allclose(calibration.log_odds(scores), want, rtol=1e-12)
