"""The pool builder: which labels enter, in which order, and which are dropped."""

import numpy as np
import pytest
import torch
from scipy import sparse

from megalabel.batching import All, ByLabel, Mined, One, PoolBuilder, Some, Uniform, generator
from megalabel.errors import DataError, SettingError


def matrix(rows, labels):
    dense = np.zeros((len(rows), labels), dtype=np.float32)
    for row, ids in enumerate(rows):
        dense[row, list(ids)] = 1
    return sparse.csr_matrix(dense)


def pool_of(builder, rows, seed=0):
    return builder.build(np.array(rows), rng=generator(seed)).view.pool.tolist()


def lists(*rows):
    width = max(map(len, rows))
    return np.array([[*row, *[-1] * (width - len(row))] for row in rows], dtype=np.int32)


def test_the_pool_is_the_sorted_union_of_positives_and_negatives():
    targets = matrix([[5], [3, 5], [0]], 9)
    builder = PoolBuilder(targets, positives=All(), negatives=[Mined(lists([8, 3], [8], [5]), eta=2)])
    batch = builder.build(np.array([2, 0]), rng=generator(0))
    assert batch.view.pool.tolist() == [0, 3, 5, 8]
    assert batch.queries.tolist() == [2, 0]
    assert batch.view.targets.dense().tolist() == [[1, 0, 0, 0], [0, 0, 1, 0]]
    assert batch.view.mask is None
    assert batch.view.candidates is None


def test_a_label_one_row_brought_in_is_a_positive_of_every_row_it_belongs_to():
    targets = sparse.csr_matrix(np.array([[0.5, 0.25, 0], [0, 1, 0.75]]))
    builder = PoolBuilder(targets, positives=One(), negatives=[Mined(lists([2], [0]), eta=1)])
    for seed in range(20):
        batch = builder.build(np.array([0, 1]), rng=generator(seed))
        assert np.array_equal(batch.view.targets.dense().numpy(), targets.toarray()[:, batch.view.pool.numpy()])


def test_over_the_cap_the_most_frequent_positives_stay():
    targets = matrix([[0, 1], [0, 2], [0, 1], [3]], 5)
    builder = PoolBuilder(targets, positives=All(), cap=2)
    batch = builder.build(np.arange(4), rng=generator(0))
    assert batch.view.pool.tolist() == [0, 1]
    assert batch.queries.tolist() == [0, 1, 2]  # row 3 lost its only positive


def test_ties_are_broken_at_random():
    builder = PoolBuilder(matrix([[label] for label in range(40)], 40), positives=All(), cap=10)
    seen = np.bincount(np.concatenate([pool_of(builder, range(40), seed) for seed in range(400)]), minlength=40)
    assert seen.min() > 60
    assert seen.max() < 140


def test_hard_negatives_most_frequent_first_then_other_positives():
    targets = matrix([[0, 5, 6], [1, 5, 7], [2, 5, 6]], 12)
    mined = Mined(lists([9, 10], [9, 11], [9, 8]), eta=2)
    settings = {"positives": _First(), "negatives": [mined]}
    assert pool_of(PoolBuilder(targets, cap=4, **settings), range(3)) == [0, 1, 2, 9]
    assert pool_of(PoolBuilder(targets, cap=7, **settings), range(3)) == [0, 1, 2, 8, 9, 10, 11]
    full = PoolBuilder(targets, cap=9, fill="positives", **settings)
    assert pool_of(full, range(3)) == [0, 1, 2, 5, 6, 8, 9, 10, 11]
    without = PoolBuilder(targets, cap=5, fill="positives", positives=_First())
    assert pool_of(without, range(3)) == [0, 1, 2, 5, 6]


def test_negatives_need_more_than_the_min_gap():
    settings = {"positives": All(), "negatives": [Mined(lists([3], [3]), eta=1)], "cap": 4}
    assert pool_of(PoolBuilder(matrix([[0], [1]], 5), min_gap=1, **settings), [0, 1]) == [0, 1, 3]
    assert pool_of(PoolBuilder(matrix([[0], [1]], 5), min_gap=2, **settings), [0, 1]) == [0, 1]


def test_sources_of_negatives_take_turns():
    settings = {"positives": All(), "cap": 3}
    targets, mined = matrix([[0]], 100), Mined(lists([7, 8]), eta=2)
    assert pool_of(PoolBuilder(targets, negatives=[mined, Uniform(50)], **settings), [0]) == [0, 7, 8]
    grown = PoolBuilder(targets, positives=All(), negatives=[mined, Uniform(50)])
    assert 50 < len(pool_of(grown, [0])) <= 53


class _First:
    """Take the lowest label of each row."""

    def choose(self, cells, rng):
        return cells.starts[:-1][np.diff(cells.starts) > 0]


def test_filtered_pairs_are_masked_only_where_the_pool_has_them():
    targets = matrix([[0], [1], [2]], 4)
    builder = PoolBuilder(targets, np.array([[0, 1], [2, 3]]), positives=All())
    batch = builder.build(np.array([0, 1, 2]), rng=generator(0))
    assert batch.view.mask.tolist() == [[True, False, True], [True, True, True], [True, True, True]]
    assert builder.build(np.array([0, 2]), rng=generator(0)).view.mask is None


def test_the_filter_wins_over_a_relevant_pair():
    builder = PoolBuilder(matrix([[0, 1], [1]], 3), np.array([[0, 1]]), positives=All())
    batch = builder.build(np.array([0, 1]), rng=generator(0))
    assert batch.view.targets.dense().tolist() == [[1, 0], [0, 1]]
    assert batch.view.mask.tolist() == [[True, False], [True, True]]
    only = PoolBuilder(matrix([[1]], 3), np.array([[0, 1]]), positives=All()).build(np.array([0]), rng=generator(0))
    assert len(only.queries) == 0


def test_rows_without_a_positive_are_dropped_or_kept():
    targets = matrix([[0], [], [1]], 3)
    dropped = PoolBuilder(targets, positives=All()).build(np.array([1, 2, 0]), rng=generator(0))
    assert dropped.queries.tolist() == [2, 0]
    assert dropped.view.targets.dense().tolist() == [[0, 1], [1, 0]]
    kept = PoolBuilder(targets, positives=All(), keep_empty=True).build(np.array([1, 2, 0]), rng=generator(0))
    assert kept.queries.tolist() == [1, 2, 0]
    assert kept.view.targets.dense().tolist() == [[0, 0], [0, 1], [1, 0]]


def test_no_rows_at_all():
    for rows in ([1], []):
        batch = PoolBuilder(matrix([[0], []], 2)).build(np.array(rows, dtype=np.int64), rng=generator(0))
        assert len(batch.queries) == 0
        assert batch.view.targets.shape == (0, 0)
        assert len(batch.view.pool) == 0


def test_a_duplicate_row_is_one_query():
    batch = PoolBuilder(matrix([[0, 1], [2]], 3), positives=All()).build(np.array([1, 0, 1, 0]), rng=generator(0))
    assert batch.queries.tolist() == [1, 0]
    assert batch.view.targets.dense().tolist() == [[0, 0, 1], [1, 1, 0]]


def test_batches_of_labels_have_those_labels_as_pool():
    targets = matrix([[0, 1], [1, 2], [3]], 5)
    builder = PoolBuilder(targets, positives=One())
    for epoch in range(5):
        for pairs in ByLabel(targets, batch_size=3, seed=0, replacement=False).batches(epoch):
            batch = builder.build(pairs, rng=generator(0, epoch))
            assert batch.view.pool.tolist() == sorted(pairs[:, 1].tolist())
            assert set(batch.queries.tolist()) == set(pairs[:, 0].tolist())


def test_all_labels():
    targets = sparse.csr_matrix(np.array([[0.5, 0, 1, 0], [0, 0, 0, 0], [0, 1, 0, 0]], dtype=np.float32))
    batch = PoolBuilder(targets, np.array([[2, 3]]), all_labels=True).build(np.array([2, 1, 0]), rng=generator(0))
    assert batch.view.pool is None
    assert batch.queries.tolist() == [2, 0]
    assert batch.view.targets.shape == (2, 4)
    assert batch.view.targets.dense().tolist() == [[0, 1, 0, 0], [0.5, 0, 1, 0]]
    assert batch.view.mask.tolist() == [[True, True, True, False], [True] * 4]


@pytest.mark.parametrize("all_labels", [False, True])
def test_the_loss_can_see_one_positive_and_the_others_are_masked(all_labels):
    targets = matrix([[0, 1, 2], [3]], 5)
    builder = PoolBuilder(targets, positives=All(), loss_positives=One(), all_labels=all_labels)
    seen = set()
    for seed in range(30):
        batch = builder.build(np.array([0, 1]), rng=generator(seed))
        dense = batch.view.targets.dense()
        assert dense.sum(1).tolist() == [1, 1]
        truth = torch.from_numpy(targets.toarray())[:, : dense.shape[1]]
        assert torch.equal(batch.view.mask, (truth == 0) | (dense > 0))
        seen.add(int(dense[0].argmax()))
    assert seen == {0, 1, 2}


def test_repeated_and_zero_cells_of_the_targets_count_once_and_never():
    raw = sparse.csr_matrix((np.array([1.0, 1, 0]), np.array([2, 2, 1]), np.array([0, 3])), shape=(1, 4))
    batch = PoolBuilder(raw, positives=All()).build(np.array([0]), rng=generator(0))
    assert batch.view.pool.tolist() == [2]
    assert batch.view.targets.values.tolist() == [1.0]
    assert raw.nnz == 3  # the given matrix is as it was


def test_types():
    batch = PoolBuilder(matrix([[0]], 1).astype(np.float64)).build(np.array([0], dtype=np.int32), rng=generator(0))
    tensors = [batch.queries, batch.view.pool, batch.view.targets.rows, batch.view.targets.cols]
    assert {tensor.dtype for tensor in tensors} == {torch.int64}
    assert batch.view.targets.values.dtype == torch.float32


def test_statistics():
    builder = PoolBuilder(matrix([[0, 1, 2, 3], [3, 4]], 6), positives=_First())
    batch = builder.build(np.array([0, 1]), rng=generator(0))
    assert batch.view.pool.tolist() == [0, 3]
    actual = builder.statistics(batch)
    assert actual == {"pool_size": 2.0, "positives_per_query": 1.5, "positives_covered": 0.5}
    every = PoolBuilder(matrix([[0, 1], []], 6), all_labels=True, keep_empty=True, loss_positives=One())
    batch = every.build(np.array([0, 1]), rng=generator(0))
    assert every.statistics(batch) == {"pool_size": 6.0, "positives_per_query": 1.0, "positives_covered": 1.0}
    empty = builder.statistics(builder.build(np.array([], dtype=np.int64), rng=generator(0)))
    assert empty == {"pool_size": 0.0, "positives_per_query": 0.0, "positives_covered": 0.0}


def test_mistakes():
    targets = matrix([[0]], 1)
    with pytest.raises(SettingError, match="cap must be at least 1"):
        PoolBuilder(targets, cap=0)
    with pytest.raises(SettingError, match="give a cap"):
        PoolBuilder(targets, fill="positives")
    with pytest.raises(SettingError, match="fill is 'all'"):
        PoolBuilder(targets, fill="all")
    for rows in ([-1], [1]):
        with pytest.raises(DataError, match="rows 0 to 0"):
            PoolBuilder(targets, positives=Some(1)).build(np.array(rows), rng=generator(0))
