"""Pickers: how many, how likely, and without a loop over rows."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from megalabel.batching import All, One, Some, generator
from megalabel.errors import SettingError


def random_targets(rng, rows=9, labels=7):
    return sparse.csr_matrix((rng.random((rows, labels)) < 0.5) * rng.uniform(0.1, 1, (rows, labels)))


@given(st.integers(0, 10**6), st.integers(1, 8), st.booleans())
def test_picks_are_distinct_positives_of_their_row(seed, beta, replacement):
    rng = np.random.default_rng(seed)
    targets = random_targets(rng)
    rows = rng.integers(0, 9, 6)
    positions, labels = Some(beta, replacement=replacement).pick(targets, rows, rng)
    assert np.all(targets[rows[positions], labels] > 0) if len(labels) else True
    assert len(set(zip(positions, labels, strict=True))) == len(labels)
    assert np.all(np.diff(positions) >= 0)
    wanted = np.minimum(np.diff(targets.indptr)[rows], beta)
    counts = np.bincount(positions, minlength=6)
    if replacement:
        assert np.all(counts <= wanted)
        assert np.all(counts >= np.minimum(wanted, 1))
    else:
        assert counts.tolist() == wanted.tolist()


def test_one_is_some_of_one_and_all_is_everything():
    targets = random_targets(np.random.default_rng(0))
    rows = np.arange(9)
    one, some = (picker.pick(targets, rows, generator(5)) for picker in (One(), Some(1)))
    assert np.array_equal(one, some)
    positions, labels = All().pick(targets, rows, generator(5))
    assert np.array_equal(np.stack([positions, labels]), np.stack(targets.nonzero()))


@pytest.mark.parametrize("picker", [One(), Some(1, replacement=True)])
def test_one_is_drawn_in_proportion_to_relevance(picker):
    values = np.array([0.1, 0.2, 0.3, 1.0])
    targets = sparse.csr_matrix(np.tile(values, (20_000, 1)))
    _, labels = picker.pick(targets, np.arange(20_000), generator(0))
    shares = np.bincount(labels, minlength=4) / 20_000
    assert np.abs(shares - values / values.sum()).max() < 0.015


def test_without_replacement_follows_successive_draws():
    values = np.array([0.2, 0.4, 1.0])
    targets = sparse.csr_matrix(np.tile(values, (20_000, 1)))
    _, labels = Some(2).pick(targets, np.arange(20_000), generator(1))
    share = np.bincount(labels, minlength=3) / 20_000
    p = values / values.sum()
    exact = np.zeros(3)
    for first, second in itertools.permutations(range(3), 2):
        chance = p[first] * p[second] / (1 - p[first])
        exact[[first, second]] += chance
    assert np.abs(share - exact).max() < 0.015


def test_tiny_values_keep_rows_apart():
    values = np.full((50, 4), 1e-12)
    positions, labels = Some(3).pick(sparse.csr_matrix(values), np.arange(50), generator(0))
    assert np.bincount(positions).tolist() == [3] * 50
    assert len(labels) == 150


def test_rows_without_labels_give_nothing():
    for picker in (One(), Some(3), Some(3, replacement=True), All()):
        positions, labels = picker.pick(sparse.csr_matrix((2, 5)), np.array([0, 1]), generator(0))
        assert len(positions) == len(labels) == 0


def test_beta_must_be_positive():
    with pytest.raises(SettingError, match="beta must be at least 1"):
        Some(0)
