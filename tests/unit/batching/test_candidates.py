"""Candidates per row: which labels are included, excluded and counted."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from megalabel.batching import CandidateBuilder, Some, generator
from megalabel.errors import SettingError

SOFT = sparse.csr_matrix(np.array([[0.5, 0, 1, 0, 0, 0], [0, 0, 0, 0, 0, 0], [0, 1, 0, 0, 0, 0]], dtype=np.float32))


def test_positives_come_first_then_mined_then_random_labels():
    lists = np.array([[3, 4], [0, 1], [5, -1]], dtype=np.int32)
    batch = CandidateBuilder(SOFT, lists=[(lists, 2)]).build(np.array([2, 1, 0]), rng=generator(0))
    assert batch.queries.tolist() == [2, 0]  # row 1 has no positive
    assert batch.view.candidates.tolist() == [[1, -1, -1, 5], [0, 2, 3, 4]]
    assert batch.view.targets.dense().tolist() == [[1, 0, 0, 0], [0.5, 1, 0, 0]]
    assert batch.view.mask.tolist() == [[True, False, False, True], [True] * 4]
    assert batch.view.pool.tolist() == [0, 1, 2, 3, 4, 5]


def test_filter_pairs_are_not_candidates():
    lists = np.array([[3, 4], [0, 1], [5, 0]], dtype=np.int32)
    pairs = np.array([[0, 3], [0, 2], [2, 0]])
    batch = CandidateBuilder(SOFT, filter=pairs, lists=[(lists, 2)]).build(np.array([0, 2]), rng=generator(0))
    assert [sorted(set(row) - {-1}) for row in batch.view.candidates.tolist()] == [[0, 4], [1, 5]]
    assert len(batch.view.targets.rows) == 2


def test_part_of_a_list_is_drawn_in_every_step():
    lists = np.tile(np.arange(10, 60, dtype=np.int32), (3, 1))
    targets = sparse.csr_matrix(np.eye(3, 60, dtype=np.float32))
    builder = CandidateBuilder(targets, lists=[(lists, 5)])
    first, same, other = (builder.build(np.arange(3), rng=generator(seed)).view.candidates for seed in (1, 1, 2))
    assert first.shape == (3, 6)
    assert torch.equal(first, same) and not torch.equal(first, other)


def test_some_positives():
    targets = sparse.csr_matrix(np.ones((2, 9), dtype=np.float32))
    batch = CandidateBuilder(targets, positives=Some(2), uniform=9).build(np.arange(2), rng=generator(0))
    assert batch.view.targets.shape == (2, 11)
    assert (batch.view.candidates[:, 2:] == -1).all()  # all that was drawn is a positive that was not picked
    actual = CandidateBuilder(targets, positives=Some(2)).statistics(batch)
    assert actual == {"pool_size": 2.0, "positives_per_query": 2.0, "positives_covered": pytest.approx(2 / 9)}


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**32), rows=st.integers(1, 8), labels=st.integers(1, 9), uniform=st.integers(0, 12))
def test_no_positive_is_a_negative_and_there_are_no_duplicates(seed, rows, labels, uniform):
    rng = np.random.default_rng(seed)
    dense = (rng.random((rows, labels)) < 0.4).astype(np.float32)
    lists = rng.integers(-1, labels, size=(rows, 4)).astype(np.int32)
    builder = CandidateBuilder(sparse.csr_matrix(dense), lists=[(lists, 3)], uniform=uniform)
    batch = builder.build(rng.permutation(rows), rng=rng)
    truth = batch.view.targets.dense().numpy()
    for query, ids, marks, mask in zip(
        batch.queries, batch.view.candidates.numpy(), truth, batch.view.mask, strict=True
    ):
        kept = ids[ids >= 0]
        assert len(set(kept)) == len(kept)
        assert np.array_equal(marks[ids >= 0], dense[query][kept])
        assert np.array_equal(mask.numpy(), ids >= 0)
        assert set(np.flatnonzero(dense[query])) <= set(kept)


def test_no_rows():
    batch = CandidateBuilder(SOFT, uniform=2).build(np.array([1]), rng=generator(0))
    assert len(batch.queries) == 0
    assert CandidateBuilder(SOFT).statistics(batch)["positives_per_query"] == 0


def test_negative_numbers_give_one_line():
    with pytest.raises(SettingError, match="negative"):
        CandidateBuilder(SOFT, uniform=-1)
