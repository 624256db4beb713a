"""Orders: what comes together, beside the contract that all orders share."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from megalabel.batching import ByLabel, Clustered, Shuffled
from megalabel.errors import DataError, SettingError


def sizes(order, epoch=0):
    return [len(batch) for batch in order.batches(epoch)]


def test_shuffled_takes_only_its_rows():
    rows = np.array([3, 5, 8, 13])
    assert sorted(np.concatenate(Shuffled(rows, 3, seed=0).batches(4)).tolist()) == rows.tolist()


@pytest.mark.parametrize(("count", "drop", "expected"), [(10, True, [4, 4]), (8, True, [4, 4]), (3, True, [3])])
def test_the_last_batch_is_dropped_on_request_but_never_the_only_one(count, drop, expected):
    assert sizes(Shuffled(np.arange(count), 4, seed=0, drop_last=drop)) == expected


def test_clusters_as_large_as_a_batch_are_the_batches():
    assignment = np.repeat(np.arange(5), [4, 3, 4, 3, 4])[np.random.default_rng(0).permutation(18)]
    for batch in Clustered(assignment, 4, seed=1).batches(2):
        assert len(np.unique(assignment[batch])) == 1
        assert len(batch) == np.count_nonzero(assignment == assignment[batch[0]])


def test_small_clusters_are_put_together_whole():
    assignment = np.arange(24) // 2
    batches = Clustered(assignment, 8, seed=0).batches(0)
    assert [len(batch) for batch in batches] == [8, 8, 8]
    for batch in batches:
        assert np.bincount(assignment[batch])[np.unique(assignment[batch])].tolist() == [2] * 4


def test_company_changes_from_epoch_to_epoch():
    order = Clustered(np.arange(64) // 4, 16, seed=0)
    together = [frozenset(map(frozenset, (batch.tolist() for batch in order.batches(epoch)))) for epoch in range(3)]
    assert len(set(together)) == 3


@given(st.lists(st.integers(1, 30), min_size=1, max_size=12), st.integers(1, 12), st.integers(0, 5))
def test_large_clusters_are_cut_into_near_equal_parts(cluster_sizes, batch_size, seed):
    assignment = np.repeat(np.arange(len(cluster_sizes)), cluster_sizes)
    batches = Clustered(assignment, batch_size, seed=seed).batches(0)
    assert max(map(len, batches)) <= batch_size
    for cluster, size in enumerate(cluster_sizes):
        parts = [count for batch in batches if (count := np.count_nonzero(assignment[batch] == cluster))]
        least = -(-size // batch_size)
        assert len(parts) <= least
        assert size // least <= min(parts)


def test_rows_without_a_cluster_stay_out():
    assert np.concatenate(Clustered(np.array([0, -1, 0]), 2, seed=0).batches(0)).tolist() in ([0, 2], [2, 0])
    assert Clustered(np.full(3, -1), 2, seed=0).batches(0) == []


def test_by_label_pairs_are_positives_drawn_by_relevance():
    targets = sparse.csr_matrix(np.array([[0.9, 0.5, 0], [0.1, 0.5, 0]]))
    pairs = np.concatenate([np.concatenate(ByLabel(targets, 2, seed=0).batches(epoch)) for epoch in range(1000)])
    assert np.all(targets[pairs[:, 0], pairs[:, 1]] > 0)
    first = pairs[pairs[:, 1] == 0, 0]
    assert abs(np.mean(first == 0) - 0.9) < 0.04


def test_by_label_without_any_label():
    with pytest.raises(DataError, match="no label has a training row"):
        ByLabel(sparse.csr_matrix((2, 3)), 2, seed=0).batches(0)


@pytest.mark.parametrize("make", [Shuffled, Clustered, ByLabel])
def test_batch_size_must_be_positive(make):
    with pytest.raises(SettingError, match="batch_size must be at least 1"):
        make(np.arange(3), 0, 0)
