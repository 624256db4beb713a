"""Orders: which rows share a batch, beyond the contract of all orders."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from megalabel.batching import ByLabel, Clustered, PoolBuilder, Shuffled, generator
from megalabel.batching.order import ClusteredOrder
from megalabel.errors import DataError, SettingError


def sizes(order, epoch=0):
    return [len(batch) for batch in order.batches(epoch)]


def test_shuffled_takes_only_its_rows():
    rows = np.array([3, 5, 8, 13])
    assert sorted(np.concatenate(Shuffled(rows, 3, seed=0).batches(4)).tolist()) == rows.tolist()


@given(st.integers(0, 200), st.integers(1, 40))
def test_batches_are_even_and_as_few_as_possible(count, batch_size):
    batches = sizes(Shuffled(np.arange(count), batch_size, seed=0))
    assert sum(batches) == count and len(batches) == -(-count // batch_size)
    assert count == 0 or max(batches) - min(batches) <= 1


def test_clusters_as_large_as_a_batch_are_the_batches():
    assignment = np.repeat(np.arange(5), [4, 3, 4, 3, 4])[np.random.default_rng(0).permutation(18)]
    for batch in Clustered(assignment, 4, seed=1).batches(2):
        assert len(np.unique(assignment[batch])) == 1
        assert len(batch) == np.count_nonzero(assignment == assignment[batch[0]])


def test_small_clusters_are_joined_into_batches():
    assignment = np.arange(24) // 2
    batches = Clustered(assignment, 8, seed=0).batches(0)
    assert [len(batch) for batch in batches] == [8, 8, 8]
    for batch in batches:
        assert np.bincount(assignment[batch])[np.unique(assignment[batch])].tolist() == [2] * 4


def test_batches_differ_between_epochs():
    order = Clustered(np.arange(64) // 4, 16, seed=0)
    together = [frozenset(map(frozenset, (batch.tolist() for batch in order.batches(epoch)))) for epoch in range(3)]
    assert len(set(together)) == 3


@given(st.lists(st.integers(1, 30), min_size=1, max_size=12), st.integers(1, 12), st.integers(0, 5))
def test_batches_of_clusters_are_even_and_a_cluster_stays_together_as_far_as_it_fits(cluster_sizes, batch_size, seed):
    assignment = np.repeat(np.arange(len(cluster_sizes)), cluster_sizes)
    batches = Clustered(assignment, batch_size, seed=seed).batches(0)
    counts = [len(batch) for batch in batches]
    assert len(counts) == -(-len(assignment) // batch_size) and max(counts) - min(counts) <= 1
    for cluster, size in enumerate(cluster_sizes):
        places = [place for place, batch in enumerate(batches) if (assignment[batch] == cluster).any()]
        assert places == [*range(places[0], places[-1] + 1)]  # its parts follow each other
        assert len(places) <= -(-size // min(counts)) + 1


@given(st.integers(2, 300), st.integers(2, 40), st.integers(0, 5))
def test_balanced_clusters_of_a_batch_are_never_cut(rows, batch_size, seed):
    clusters = -(-rows // batch_size)
    assignment = np.arange(rows) % clusters
    batches = Clustered(assignment, batch_size, seed=seed).batches(0)
    assert [len(np.unique(assignment[batch])) for batch in batches] == [1] * clusters


def test_rows_without_a_cluster_are_left_out():
    assert np.concatenate(Clustered(np.array([0, -1, 0]), 2, seed=0).batches(0)).tolist() in ([0, 2], [2, 0])
    assert Clustered(np.full(3, -1), 2, seed=0).batches(0) == []


def test_by_label_pairs_are_positives_drawn_by_relevance():
    targets = sparse.csr_matrix(np.array([[0.9, 0.5, 0], [0.1, 0.5, 0]]))
    pairs = np.concatenate([np.concatenate(ByLabel(targets, 2, seed=0).batches(epoch)) for epoch in range(1000)])
    assert np.all(targets[pairs[:, 0], pairs[:, 1]] > 0)
    first = pairs[pairs[:, 1] == 0, 0]
    assert abs(np.mean(first == 0) - 0.9) < 0.04


def by_hand(targets, power):
    """The chance of each label in one draw, and of each (row, label, partner) given the label."""
    dense = targets.toarray()
    frequency = (dense > 0).sum(axis=0)
    chances = np.where(frequency > 0, frequency.astype(float) ** power, 0)
    triples = {}
    for label in np.flatnonzero(frequency):
        rows = np.flatnonzero(dense[:, label])
        for first in rows:
            others = [row for row in rows if row != first] or [first]
            for second in others:
                weight = dense[first, label] / dense[rows, label].sum()
                triples[first, label, second] = weight * dense[second, label] / dense[others, label].sum()
    return chances / chances.sum(), triples


@pytest.mark.parametrize("power", [0.0, 0.45, 1.0])
def test_labels_rows_and_partners_are_drawn_as_often_as_they_should(power):
    targets = sparse.csr_matrix(
        np.array([[1.0, 0.2, 0, 0], [1, 0.6, 0, 0], [0.5, 0, 0, 0], [0, 0, 0, 1], [1, 0, 0, 0], [1, 0, 0, 0]])
    )
    chances, triples = by_hand(targets, power)
    epochs = 4_000
    order = ByLabel(targets, 2, seed=3, power=power)
    drawn = np.concatenate([np.concatenate(order.batches(epoch)) for epoch in range(epochs)])
    assert len(drawn) == 3 * epochs  # as many as there are labels with a row
    labels = np.bincount(drawn[:, 1], minlength=4)
    expected = len(drawn) * chances
    assert np.all(np.abs(labels - expected) <= 4 * np.sqrt(expected * (1 - chances)))
    for (first, label, second), weight in triples.items():
        count = np.all(drawn == [first, label, second], axis=1).sum()
        mean = expected[label] * weight
        assert abs(count - mean) <= 4 * np.sqrt(mean) + 1e-9
    assert {tuple(triple) for triple in drawn.tolist()} <= set(triples)


def test_a_batch_of_labels_carries_anchors_and_partners():
    targets = sparse.csr_matrix(np.array([[1.0, 1, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]]))
    builder = PoolBuilder(targets)
    for drawn in ByLabel(targets, 3, seed=0).batches(1):
        batch = builder.build(drawn, rng=generator(0))
        first = {row: (label, other) for row, label, other in reversed(drawn.tolist())}
        assert batch.queries.tolist() == list(dict.fromkeys(drawn[:, 0].tolist()))
        actual = list(zip(batch.anchors.tolist(), batch.partners.tolist(), strict=True))
        assert actual == [first[row] for row in batch.queries.tolist()]
        assert set(batch.view.pool.tolist()) == set(drawn[:, 1].tolist())
        assert batch.to("cpu").partners.tolist() == batch.partners.tolist()
    plain = builder.build(np.array([0, 1]), rng=generator(0))
    assert plain.anchors is None and plain.partners is None and plain.to("cpu").anchors is None


def test_clusters_double_when_they_should_and_stop_at_a_batch():
    """NGAME: single queries at first, doubled at these epochs."""
    ngame = ClusteredOrder(size=1, double_at=(10, 20, 25, 50, 75, 100, 125, 150, 200))
    size, expected = 1, []
    for epoch in range(300):
        if epoch in ngame.double_at:
            size = size * 2
        expected.append(min(size, 300))
    assert [ngame.size_at(epoch, 300) for epoch in range(300)] == expected
    assert expected[-1] == 300 and ngame.size_at(299, 1600) == 512
    assert [ClusteredOrder().size_at(epoch, 64) for epoch in (0, 100)] == [64, 64]
    assert [ClusteredOrder(size=32).size_at(epoch, 64) for epoch in (0, 100)] == [32, 32]


def test_single_queries_are_a_shuffled_order():
    batches = Clustered(np.arange(10), 4, seed=0).batches(3)
    assert [len(batch) for batch in batches] == [4, 3, 3]
    assert sorted(np.concatenate(batches).tolist()) == list(range(10))


def test_by_label_without_any_label():
    with pytest.raises(DataError, match="no label has a training row"):
        ByLabel(sparse.csr_matrix((2, 3)), 2, seed=0).batches(0)


@pytest.mark.parametrize("make", [Shuffled, Clustered, ByLabel])
def test_batch_size_must_be_positive(make):
    with pytest.raises(SettingError, match="batch_size must be at least 1"):
        make(np.arange(3), 0, 0)
