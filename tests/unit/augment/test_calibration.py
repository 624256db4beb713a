import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.isotonic import IsotonicRegression

from megalabel.augment import calibration
from megalabel.augment.calibration import Calibration, isotonic


@given(
    points=st.lists(st.tuples(st.integers(0, 12), st.booleans()), min_size=1, max_size=60),
)
def test_isotonic_equals_scikit_learn(points):
    x = np.array([place / 12 for place, _ in points])
    y = np.array([float(true) for _, true in points])
    theirs = IsotonicRegression(out_of_bounds="clip").fit(x, y)
    distinct, values = isotonic(x, y)
    assert distinct.tolist() == sorted(set(x.tolist()))
    np.testing.assert_allclose(values, theirs.predict(distinct), atol=1e-7)
    other = np.linspace(-0.1, 1.1, 50)
    np.testing.assert_allclose(np.interp(other, distinct, values), theirs.predict(other), atol=1e-7)
    assert np.all(np.diff(values) >= 0)


def slow_isotonic(x, y):
    """The same by a formula: the largest over starts of the smallest over ends of the mean between them."""
    distinct = sorted(set(x.tolist()))
    return [
        max(min(y[(x >= low) & (x <= high)].mean() for high in distinct if high >= at) for low in distinct if low <= at)
        for at in distinct
    ]


def test_isotonic_equals_the_max_min_formula():
    rng = np.random.default_rng(0)
    x, y = rng.integers(1, 9, 40) / 9, (rng.random(40) < 0.4).astype(float)
    np.testing.assert_allclose(isotonic(x, y)[1], slow_isotonic(x, y))


def slow_ranges(points, least):
    """The ranges of points, one pair at a time: where each begins."""
    octaves = [int(math.log2(n)) for n in points]
    starts, inside = [0], 0
    for octave in range(max(octaves) + 1):
        if inside >= least and sum(one >= octave for one in octaves) >= least:
            starts, inside = [*starts, octave], 0
        inside += octaves.count(octave)
    return [2**start for start in starts]


@pytest.mark.parametrize("least", [1, 10, 100, 10_000])
def test_a_curve_for_each_range_of_points(monkeypatch, least):
    monkeypatch.setattr(calibration, "PAIRS", least)
    rng = np.random.default_rng(1)
    points = rng.choice([1, 2, 3, 5, 8, 40], 400)
    c = np.maximum(1, rng.integers(1, 41, 400) * points // 40) / points
    true = rng.random(400) < c * (points > 1)
    fitted = Calibration.fit(c, points, true)
    assert fitted.starts.tolist() == slow_ranges(points.tolist(), least)
    asked, of = rng.random(60), rng.choice([1, 2, 4, 7, 40, 1000], 60)
    for value, n, found in zip(asked, of, fitted(asked, of), strict=True):
        low = max(start for start in fitted.starts if start <= n)
        high = min((start for start in fitted.starts if start > n), default=math.inf)
        known = (points >= low) & (points < high)
        theirs = IsotonicRegression(out_of_bounds="clip").fit(c[known], true[known].astype(float))
        assert found == pytest.approx(theirs.predict([value])[0], abs=1e-7)


def test_every_range_has_enough_pairs():
    rng = np.random.default_rng(2)
    points = np.r_[np.ones(150, dtype=int), rng.integers(2, 4, 60), rng.integers(4, 8, 60), rng.integers(8, 200, 70)]
    fitted = Calibration.fit(rng.random(len(points)), points, rng.random(len(points)) < 0.5)
    ends = [*fitted.starts[1:], math.inf]
    sizes = [((points >= low) & (points < high)).sum() for low, high in zip(fitted.starts, ends, strict=True)]
    assert len(sizes) > 1
    assert min(sizes) >= calibration.PAIRS


def test_few_pairs_are_one_range():
    fitted = Calibration.fit(np.array([0.5, 1.0]), np.array([2, 64]), np.array([False, True]))
    assert fitted.starts.tolist() == [1]
    assert fitted(np.array([0.2, 0.5, 0.75, 1.0]), np.array([1, 2, 3, 9])).tolist() == [0, 0, 0.5, 1]
