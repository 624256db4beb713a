"""The walk against the exact chain, against a plain walk, and the rules for head labels and seeds."""

import random
from importlib import import_module

import numpy as np
import pytest
from scipy import sparse

from megalabel.errors import DataError, SettingError
from megalabel.graphs import random_walk, walk_targets

module = import_module("megalabel.graphs.random_walk")

SMALL = sparse.csr_matrix(
    [[1, 1, 0, 0, 0], [1, 0, 1, 0, 0], [0, 1, 1, 1, 0], [0, 0, 0, 1, 0], [0, 0, 0, 1, 1], [1, 1, 0, 0, 0]]
)


def hop_chances(targets):
    """P(label -> label) of one hop."""
    dense = (targets.toarray() > 0).astype(float)
    to_point = dense.T / np.maximum(dense.sum(axis=0)[:, None], 1)
    to_label = dense / np.maximum(dense.sum(axis=1, keepdims=True), 1)
    return to_point @ to_label


def expected_visits(targets, length, reset):
    """Mean visits of every walk, from the Markov chain over the place of each hop."""
    hop = hop_chances(targets)
    at = np.eye(len(hop))  # row l: where the walk from l starts its next hop
    total = np.zeros_like(hop)
    for _ in range(length):
        end = at @ hop
        total += end
        at = reset * np.eye(len(hop)) + (1 - reset) * end
    return total


def plain_walk(targets, label, length, reset, rng):
    """One walk as one would write it down."""
    labels_of, points_of = ([row.indices.tolist() for row in matrix] for matrix in (targets.tocsr(), targets.T.tocsr()))
    visits = np.zeros(targets.shape[1])
    here = label
    for _ in range(length):
        here = rng.choice(labels_of[rng.choice(points_of[here])])
        visits[here] += 1
        if rng.random() < reset:
            here = label
    return visits


@pytest.mark.parametrize("reset", [0.0, 0.3, 0.8, 1.0])
def test_visits_agree_with_the_exact_chain(reset):
    length = 40_000
    visits = random_walk(SMALL, length=length, reset=reset, top=None, seed=5).toarray() / length
    wanted = expected_visits(SMALL, length, reset) / length
    # Visits of one walk hang together when it seldom restarts: allow five deviations of a chain that mixes in ten hops.
    assert np.all(np.abs(visits - wanted) <= 5 * np.sqrt(10 * wanted * (1 - wanted) / length) + 1e-9)


def test_short_walks_agree_on_average():
    """Over many copies of the set, so that the first hops count: they always leave from the label itself."""
    copies = sparse.csr_matrix(sparse.kron(sparse.eye(3_000), SMALL))
    visits = random_walk(copies, length=3, reset=0.5, top=None, head=None).tocoo()
    assert np.array_equal(visits.row // 5, visits.col // 5)
    total = sparse.csr_matrix((visits.data, (visits.row % 5, visits.col % 5)), shape=(5, 5)).toarray()
    diagonal = np.eye(5, dtype=bool)
    assert np.allclose(total[~diagonal] / 3_000, expected_visits(SMALL, 3, 0.5)[~diagonal], atol=0.08)


def test_agrees_with_a_plain_walk():
    plain = plain_walk(SMALL, 2, 30_000, 0.8, random.Random(1)) / 30_000
    visits = random_walk(SMALL, length=30_000, top=None, seed=2)[2].toarray()[0] / 30_000
    assert np.allclose(visits, plain, atol=0.02)


def test_every_row_holds_its_visits_and_itself():
    visits = random_walk(SMALL, length=50, top=None, seed=0)
    assert visits.dtype == np.float32
    assert visits.has_canonical_format
    assert np.all(visits.diagonal() >= 1)
    assert np.all(np.abs(visits.sum(axis=1) - 50) <= 1)  # a label that never came home is given one visit


def test_walks_avoid_head_labels():
    # Label 1 has three points and is the only bridge between 0 and 2.
    targets = sparse.csr_matrix([[1, 1, 0, 0], [0, 1, 1, 0], [0, 1, 0, 0], [0, 0, 1, 1]])
    bridged = random_walk(targets, length=2_000, reset=0.5, seed=0, head=3)
    assert bridged[0, 2] > 0
    visits = random_walk(targets, length=2_000, reset=0.5, seed=0, head=2)
    assert visits[0].toarray().tolist() == [[2_000, 0, 0, 0]]
    assert visits[1].toarray().tolist() == [[0, 2_000, 0, 0]]
    assert visits[2, 1] == 0
    assert visits[2, 3] > 0
    assert random_walk(targets, head=1, length=7).toarray()[1].tolist() == [0, 7, 0, 0]


def test_labels_without_points_visit_only_themselves():
    targets = sparse.csr_matrix(([1.0, 1.0], ([0, 0], [0, 2])), shape=(1, 4))
    assert random_walk(targets, length=9)[[1, 3]].toarray().tolist() == [[0, 9, 0, 0], [0, 0, 0, 9]]


def test_top_keeps_the_most_visited_and_the_label_itself():
    every = random_walk(SMALL, length=300, top=None, seed=1)
    few = random_walk(SMALL, length=300, top=2, seed=1)
    for label in range(5):
        row = every[label].toarray()[0]
        best = sorted(np.flatnonzero(row), key=lambda i: (i != label, -row[i], i))[:2]
        assert few[label].indices.tolist() == sorted(best)
        assert few[label].data.tolist() == row[sorted(best)].tolist()


def test_walks_depend_only_on_the_seed_and_the_label(monkeypatch):
    rng = np.random.default_rng(0)
    targets = sparse.csr_matrix((rng.random((80, 50)) < 0.1).astype(np.float32))
    monkeypatch.setattr(module, "_HOPS", 400)  # chunks of 10 labels
    answers = []
    for threads in (1, 4):
        monkeypatch.setattr(module, "_threads", lambda threads=threads: threads)
        answers.append(random_walk(targets, length=40, seed=3))
    assert (answers[0] != answers[1]).nnz == 0
    assert (answers[0] != random_walk(targets, length=40, seed=4)).nnz > 0
    wider = sparse.csr_matrix(sparse.hstack([targets, sparse.csr_matrix((80, 13))]))
    assert (random_walk(wider, length=40, seed=3)[:50, :50] != answers[0]).nnz == 0


def test_targets_are_not_changed():
    targets = SMALL.astype(np.float32) * 0.5
    before = targets.copy()
    random_walk(targets, head=2, length=10)
    assert np.array_equal(targets.indices, before.indices)
    assert np.array_equal(targets.indptr, before.indptr)
    assert np.array_equal(targets.data, before.data)


@pytest.mark.parametrize(
    "wrong", [{"length": 0}, {"reset": 1.2}, {"reset": -0.1}, {"top": 0}, {"head": 0}, {"seed": -1}]
)
def test_mistakes(wrong):
    with pytest.raises(SettingError, match=next(iter(wrong))):
        random_walk(SMALL, **wrong)
    with pytest.raises(DataError, match="empty"):
        random_walk(sparse.csr_matrix((2, 2)))


def test_rows_are_divided_by_their_diagonal_clipped_and_cut():
    visits = sparse.csr_matrix([[10.0, 1, 4, 20], [0, 5, 0, 0], [3, 0, 0, 0], [1, 0, 0, 2]])
    targets = walk_targets(visits, 0.1)
    expected = [[1, 0, 0.4, 1], [0, 1, 0, 0], [0, 0, 1, 0], [0.5, 0, 0, 1]]
    assert targets.toarray().tolist() == np.float32(expected).tolist()
    assert targets.dtype == np.float32
    assert targets.has_canonical_format


def test_walks_of_a_set_become_targets():
    targets = sparse.csr_matrix((np.random.default_rng(0).random((60, 20)) < 0.15).astype(np.float32))
    soft = walk_targets(random_walk(targets, seed=0), 0.2)
    assert np.array_equal(soft.diagonal(), np.ones(20))
    assert np.all((soft.data > 0.2) & (soft.data <= 1))


def test_invalid_delta():
    with pytest.raises(SettingError, match="delta"):
        walk_targets(sparse.eye(3, format="csr"), 1.0)
    with pytest.raises(DataError, match="square"):
        walk_targets(sparse.csr_matrix((2, 3)))
    with pytest.raises(DataError, match="negative"):
        walk_targets(-sparse.eye(3, format="csr"))
