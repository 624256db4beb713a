"""Hits of test rows as text, and the bootstrap of two systems on the same rows."""

import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_matrix

ROOT = Path(__file__).parents[2]
for folder in ("benchmarks", "docs"):
    sys.path.insert(0, str(ROOT / folder))
paired, intervals = import_module("_paired"), import_module("_intervals")
for folder in ("benchmarks", "docs"):
    sys.path.remove(str(ROOT / folder))


def test_hits_come_back_as_precision():
    targets = csr_matrix(np.array([[1, 0, 1, 0, 0, 1], [0, 0, 0, 0, 0, 0], [0, 1, 0, 0, 0, 0]], dtype=np.float32))
    ids = np.array([[0, 2, 1, 3, 4, 5], [0, 1, 2, 3, 4, 5], [0, 1, -1, -1, -1, -1]])
    hits = intervals.unpacked(paired.packed(paired.hits_of(ids, targets)))
    assert intervals.precision(hits, 1).tolist() == [100, 0, 0]
    assert intervals.precision(hits, 5) == pytest.approx([40, 0, 20])


def test_the_interval_holds_the_difference_and_pairs_rows():
    rng = np.random.default_rng(0)
    worse = (rng.random(2_000) < 0.5) * 100.0
    better = np.where(rng.random(2_000) < 0.02, 100.0, worse)  # never worse: pairing sees a small difference
    low, high = intervals.interval([better], [worse])
    difference = (better - worse).mean()
    assert 0 < low < difference < high < 2
    assert intervals.interval([better, worse], [worse, better]) == (0, 0)
    apart = intervals.interval([better], [rng.permutation(worse)])
    assert apart[1] - apart[0] > 2 * (high - low)


def test_intervals_of_rows_of_studies():
    hits = [{"hits": paired.packed(np.array(values))} for values in ([1, 1, 1, 1], [0, 0, 2, 0])]
    assert intervals.of_first_place(hits[:1], hits[1:]) == (100, 100)
    documents = paired.packed(np.array([1, 2, 3, 9]))  # of one, and of nine, which do not fit into five
    ranks = [
        {"needed": paired.packed(np.array(values)), "documents": documents} for values in ([0, 3, 5, 9], [1, 6, 0, 9])
    ]
    assert intervals.of_complete(ranks[:1], ranks[1:], 5) == (100, 100)
    assert intervals.of_complete(ranks[:1], ranks[:1], 10) == (0, 0)
