"""Hits of test rows as text, and the bootstrap of two systems on the same rows."""

import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_matrix

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))
paired = import_module("_paired")
sys.path.remove(str(BENCHMARKS))


def test_hits_come_back_as_precision():
    targets = csr_matrix(np.array([[1, 0, 1, 0, 0, 1], [0, 0, 0, 0, 0, 0], [0, 1, 0, 0, 0, 0]], dtype=np.float32))
    ids = np.array([[0, 2, 1, 3, 4, 5], [0, 1, 2, 3, 4, 5], [0, 1, -1, -1, -1, -1]])
    hits = paired.unpacked(paired.packed(paired.hits_of(ids, targets)))
    assert paired.precision(hits, 1).tolist() == [100, 0, 0]
    assert paired.precision(hits, 5) == pytest.approx([40, 0, 20])


def test_the_interval_holds_the_difference_and_pairs_rows():
    rng = np.random.default_rng(0)
    worse = (rng.random(2_000) < 0.5) * 100.0
    better = np.where(rng.random(2_000) < 0.02, 100.0, worse)  # never worse: pairing sees a small difference
    low, high = paired.interval([better], [worse])
    difference = (better - worse).mean()
    assert 0 < low < difference < high < 2
    assert paired.interval([better, worse], [worse, better]) == (0, 0)
    apart = paired.interval([better], [rng.permutation(worse)])
    assert apart[1] - apart[0] > 2 * (high - low)
