"""Mining leaves out known positives; drawing is uniform and handles short lists."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from megalabel.batching import Mined, Uniform, generator, mine
from megalabel.errors import DataError, SettingError
from megalabel.index import ExactIndex


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.integers(1, 9), st.integers(1, 5))
def test_mined_lists_are_the_best_unknown_labels(seed, top, chunk):
    rng = np.random.default_rng(seed)
    known = rng.random((6, 7)) < 0.4
    filtered = rng.random((6, 7)) < 0.2
    queries, labels = (torch.from_numpy(rng.integers(-3, 4, (n, 3)).astype(np.float32)) for n in (6, 7))
    targets = sparse.csr_matrix(known * 0.5)
    actual = mine(queries, ExactIndex(labels), targets, np.argwhere(filtered), top, chunk=chunk)
    assert actual.dtype == np.int32
    scores = (queries @ labels.T).numpy()
    for row in range(6):
        allowed = np.flatnonzero(~known[row] & ~filtered[row])
        best = allowed[np.lexsort((allowed, -scores[row, allowed]))][:top]
        assert actual[row].tolist() == [*best.tolist(), *[-1] * (top - len(best))]


def test_mining_without_filter_and_with_wrong_sizes():
    index, targets = ExactIndex(torch.eye(3)), sparse.csr_matrix(np.eye(3))
    assert mine(torch.eye(3), index, targets, None, top=2)[0].tolist() == [1, 2]
    with pytest.raises(DataError, match="2 query vectors but 3 rows"):
        mine(torch.eye(3)[:2], index, targets, None, top=2)
    with pytest.raises(SettingError, match="top must be at least 1"):
        mine(torch.eye(3), index, targets, None, top=0)


@given(st.integers(0, 10**6), st.integers(1, 8))
def test_each_row_gives_eta_different_labels_of_its_list(seed, eta):
    rng = np.random.default_rng(seed)
    lists = np.stack([rng.permutation(20)[:6] for _ in range(5)]).astype(np.int32)
    lengths = rng.integers(0, 7, 5)
    lists[np.arange(6) >= lengths[:, None]] = -1
    before = lists.copy()
    for row in range(5):
        drawn = Mined(lists, eta).draw(np.array([row]), 20, rng)
        assert len(set(drawn.tolist())) == len(drawn) == min(eta, lengths[row])
        assert set(drawn.tolist()) <= set(lists[row, : lengths[row]].tolist())
    assert len(Mined(lists, eta).draw(np.arange(5), 20, rng)) == np.minimum(lengths, eta).sum()
    assert np.array_equal(lists, before)


def test_mined_labels_are_equally_likely():
    lists = np.tile(np.arange(5, dtype=np.int32), (20_000, 1))
    drawn = Mined(lists, 2).draw(np.arange(20_000), 5, generator(0))
    assert np.abs(np.bincount(drawn) / 20_000 - 0.4).max() < 0.015


def test_uniform_gives_different_labels_and_at_most_all():
    drawn = Uniform(50).draw(np.array([0]), 1000, generator(0))
    assert len(set(drawn.tolist())) == 50
    assert drawn.min() >= 0
    assert drawn.max() < 1000
    assert sorted(Uniform(9).draw(np.array([0]), 4, generator(0)).tolist()) == [0, 1, 2, 3]
    many = np.concatenate([Uniform(2).draw(np.array([0]), 5, generator(step)) for step in range(5_000)])
    assert np.abs(np.bincount(many) / 5_000 - 0.4).max() < 0.03


def test_counts_must_be_positive():
    with pytest.raises(SettingError, match="eta"):
        Mined(np.zeros((1, 1), dtype=np.int32), 0)
    with pytest.raises(SettingError, match="n must be"):
        Uniform(0)
