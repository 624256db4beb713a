import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from megalabel.data.builtin._items import Items, keep_labels, split_items
from megalabel.data.items import reverse_share
from megalabel.errors import DataError

WORDS = {"name": "graph", "about": "", "licence": ""}


@st.composite
def graphs(draw):
    size = draw(st.integers(4, 25))
    ends = st.tuples(st.integers(0, size - 1), st.integers(0, size - 1))
    pairs = draw(st.lists(ends, min_size=3, max_size=80))
    if draw(st.booleans()):
        pairs += [(b, a) for a, b in pairs]
    return Items([f"item {i}" for i in range(size)], [f"i{i}" for i in range(size)], np.array(pairs, dtype=np.int64))


def pairs_of(data, split):
    rows, columns = split.targets.nonzero()
    return {(split.uids[row], data.labels.uids[column]) for row, column in zip(rows, columns, strict=True)}


@given(items=graphs(), seed=st.integers(0, 5), make=st.sampled_from([split_items, keep_labels]))
def test_what_every_split_holds(items, seed, make):
    try:
        data = make(items, **WORDS, share=0.2, seed=seed)
    except DataError:
        assume(False)
    given_pairs = {(items.uids[a], items.uids[b]) for a, b in items.pairs}
    train, test = pairs_of(data, data.train), pairs_of(data, data.test)
    assert train <= given_pairs
    assert test <= given_pairs
    assert not set(data.train.uids) & set(data.test.uids)
    assert not any((b, a) in train for a, b in test)
    assert reverse_share(data, data.test) == 0
    assert data.counts.min() >= 1
    assert {b for _, b in train} == set(data.labels.uids)
    filtered = {(data.test.uids[row], data.labels.uids[column]) for row, column in data.test.filter}
    assert not filtered & test
    assert {(uid, uid) for uid in data.test.uids if uid in set(data.labels.uids)} <= filtered


@given(items=graphs(), seed=st.integers(0, 5))
def test_split_items_keeps_the_whole_truth_of_test_points(items, seed):
    try:
        data = split_items(items, **WORDS, share=0.2, seed=seed)
    except DataError:
        assume(False)
    labels, test = set(data.labels.uids), set(data.test.uids)
    truth = {
        (items.uids[a], items.uids[b]) for a, b in items.pairs if items.uids[a] in test and items.uids[b] in labels
    }
    assert pairs_of(data, data.test) == truth


@given(items=graphs(), seed=st.integers(0, 5))
def test_keep_labels_keeps_every_label(items, seed):
    try:
        data = keep_labels(items, **WORDS, share=0.2, seed=seed)
    except DataError:
        assume(False)
    assert list(data.labels.uids) == [items.uids[b] for b in np.unique(items.pairs[:, 1])]


def test_labels_with_too_many_points_are_dropped():
    pairs = [(i, 0) for i in range(1, 50)] + [(i, 50 + i % 5) for i in range(1, 50)]
    items = Items([f"item {i}" for i in range(60)], [f"i{i}" for i in range(60)], np.array(pairs))
    data = split_items(items, **WORDS, share=0.2, seed=0, max_points=20)
    assert "i0" not in data.labels.uids
    assert data.counts.max() <= 20
    assert np.diff(data.train.targets.indptr).min() == 1


def test_too_few_points_are_an_error():
    with pytest.raises(DataError, match="graph: 1 points are too few"):
        split_items(Items(["a", "b"], ["a", "b"], np.array([[0, 1]])), **WORDS, share=0.5, seed=0)
