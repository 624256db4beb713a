"""Counts against the dense formula, whatever the blocks; the strict threshold; the diagonal."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

import megalabel
from megalabel.errors import DataError, SettingError
from megalabel.graphs import cooccurrence

GOLDEN = sparse.csr_matrix([[1, 1, 0, 0], [1, 0, 1, 0], [1, 1, 0, 0], [0, 0, 1, 1], [1, 0, 0, 0]])


def brute(dense, delta, top=None, share_rows=False, shrink=0):
    """The formula, cell by cell."""
    ones = (dense > 0).astype(float)
    labels = ones.shape[1]
    out = np.zeros((labels, labels))
    for j in range(labels):
        for i in range(labels):
            weights = 1 / np.maximum(ones.sum(axis=1) - 1, 1) if share_rows else np.ones(len(ones))
            together, own = float((weights * ones[:, i] * ones[:, j]).sum()), float(ones[:, j].sum()) + shrink
            share = 1.0 if i == j else together / own if own else 0.0
            out[j, i] = share if i == j or share > delta else 0.0
        if top is not None:
            best = sorted(np.flatnonzero(out[j]), key=lambda i: (i != j, -np.float32(out[j, i]), i))
            out[j, best[top:]] = 0.0
    return out.astype(np.float32)


def random_targets(seed, points, labels, share):
    rng = np.random.default_rng(seed)
    dense = (rng.random((points, labels)) < share) * rng.uniform(0.1, 1.0, (points, labels))
    dense[0, 0] = 1.0
    return sparse.csr_matrix(dense.astype(np.float32))


def test_golden_matrix():
    wanted = [[1, 0.5, 0.25, 0], [1, 1, 0, 0], [0.5, 0, 1, 0.5], [0, 0, 1, 1]]
    assert megalabel.graphs.cooccurrence(GOLDEN, delta=0.1).toarray().tolist() == wanted
    assert cooccurrence(GOLDEN, 0.0).toarray().tolist() == wanted
    assert cooccurrence(GOLDEN, 0.25).toarray().tolist() == [[1, 0.5, 0, 0], *wanted[1:]]


@pytest.mark.parametrize("options", [{"share_rows": True}, {"shrink": 1}, {"share_rows": True, "shrink": 2}])
@pytest.mark.parametrize("block", [None, 3])
def test_estimates_that_trust_less(options, block):
    for seed in range(20):
        targets = random_targets(seed, 25, 9, 0.3)
        for delta in (0.0, 0.1017, 0.27):  # no sum of fractions is exactly there
            graph = cooccurrence(targets, delta, block=block, **options).toarray()
            np.testing.assert_allclose(graph, brute(targets.toarray(), delta, **options), rtol=1e-6)


def test_shared_counts_add_up_to_one_at_most():
    graph = cooccurrence(random_targets(3, 40, 9, 0.5), 0.0, share_rows=True).toarray()
    assert (graph.sum(axis=1) - 1 <= 1 + 1e-6).all()


@given(
    seed=st.integers(0, 10**6),
    points=st.integers(1, 30),
    labels=st.integers(1, 14),
    share=st.sampled_from([0.02, 0.15, 0.5, 1.0]),
    delta=st.sampled_from([0.0, 0.1, 0.25, 1 / 3, 0.5, 0.99]),
    top=st.one_of(st.none(), st.integers(1, 15)),
    block=st.one_of(st.none(), st.integers(1, 15)),
)
def test_equals_the_dense_formula_for_any_block_and_top(seed, points, labels, share, delta, top, block):
    targets = random_targets(seed, points, labels, share)
    graph = cooccurrence(targets, delta, top=top, block=block)
    assert np.array_equal(graph.toarray(), brute(targets.toarray(), delta, top))
    assert graph.dtype == np.float32
    assert graph.has_canonical_format
    assert graph.indptr[-1] == graph.nnz == np.count_nonzero(graph.data)
    assert np.array_equal(graph.diagonal(), np.ones(labels))
    assert np.all((graph.data > np.float32(delta) * (1 - 1e-6)) & (graph.data <= 1))
    assert top is None or np.diff(graph.indptr).max() <= top


def test_the_block_size_does_not_change_the_result(monkeypatch):
    from importlib import import_module

    targets = random_targets(3, 200, 60, 0.1)
    whole = cooccurrence(targets)
    monkeypatch.setattr(import_module("megalabel.graphs.cooccurrence"), "_PRODUCTS", 50)
    assert (cooccurrence(targets) != whole).nnz == 0


@pytest.mark.parametrize(("together", "delta", "kept"), [(1, 0.1, False), (2, 0.1, True), (3, 0.3, False)])
def test_threshold_is_strict_where_float32_would_round_up(together, delta, kept):
    dense = np.zeros((10, 2))
    dense[:, 0] = 1
    dense[:together, 1] = 1
    assert (cooccurrence(sparse.csr_matrix(dense), delta)[0, 1] > 0) == kept


def test_labels_without_a_point_have_only_themselves():
    graph = cooccurrence(sparse.csr_matrix(([1.0], ([0], [1])), shape=(2, 3)))
    assert graph.toarray().tolist() == np.eye(3).tolist()


def test_soft_targets_repeats_and_stored_zeros():
    soft = GOLDEN.astype(np.float32) * 0.3
    assert (cooccurrence(soft) != cooccurrence(GOLDEN)).nnz == 0
    messy = sparse.csr_matrix(([1.0, 1, 0, 1], [1, 0, 2, 1], [0, 4]), shape=(1, 3))
    before = (messy.indices.copy(), messy.data.copy())
    assert cooccurrence(messy).toarray().tolist() == [[1, 1, 0], [1, 1, 0], [0, 0, 1]]
    assert np.array_equal(messy.indices, before[0])
    assert np.array_equal(messy.data, before[1])


@pytest.mark.parametrize("delta", [-0.1, 1.0, 7, float("nan")])
def test_delta_outside_its_range(delta):
    with pytest.raises(SettingError, match=r"\[0, 1\)"):
        cooccurrence(GOLDEN, delta)


def test_mistakes():
    with pytest.raises(DataError, match="empty"):
        cooccurrence(sparse.csr_matrix((3, 4)))
    with pytest.raises(DataError, match="sparse"):
        cooccurrence(np.ones((2, 2)))
    with pytest.raises(DataError, match="negative"):
        cooccurrence(-GOLDEN)
    with pytest.raises(SettingError, match="top"):
        cooccurrence(GOLDEN, top=0)
    with pytest.raises(SettingError, match="block"):
        cooccurrence(GOLDEN, block=0)
