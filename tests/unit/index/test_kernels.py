"""The loops of a search against numpy."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from megalabel.index._kernels import collect, decide, rank

NONE = np.float32(-np.inf)


def held(rows, room):
    return (
        np.full(rows, NONE), np.zeros(rows, dtype=np.int64), np.empty((rows, room), dtype=np.float32),
        np.empty((rows, room), dtype=np.int64),
    )  # fmt: skip


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 300), st.integers(1, 40), st.integers(0, 30), st.integers(1, 100), st.booleans(),
       st.integers(0, 10_000))  # fmt: skip
def test_collect_keeps_the_best_whatever_the_blocks(labels, keep, more, block, ties, seed):
    rng = np.random.default_rng(seed)
    scores = rng.standard_normal((3, labels)).astype(np.float32)
    scores = scores.round() if ties else scores
    scores[rng.random(scores.shape) < 0.1] = NONE
    keep = min(keep, labels)
    bars, sizes, best, ids = held(3, min(labels, keep + 1 + more))
    for start in range(0, labels, block):
        part = np.ascontiguousarray(scores[:, start : start + block])
        collect(part, start, keep, bars, sizes, best, ids, 0, 3)
    for row in range(3):
        size = sizes[row]
        assert len(set(ids[row, :size].tolist())) == size
        np.testing.assert_array_equal(scores[row, ids[row, :size]], best[row, :size])
        want = np.sort(scores[row][scores[row] > NONE])[::-1][:keep]
        np.testing.assert_array_equal(np.sort(best[row, :size])[::-1][:keep], want)


def test_decide_marks_crowded_rows():
    labels = np.eye(6, dtype=np.float32)
    queries = np.array([[6, 5, 4, 3, 2, 1], [6, 5, 4, 4, 4, 4], [9, 8, 1, 1, 1, 1]], dtype=np.float32)
    scores, top_ids = np.empty((3, 2), dtype=np.float32), np.empty((3, 2), dtype=np.int64)
    for k, crowded in ((2, [False, False, False]), (1, [False, False, False])):
        bars, sizes, best, ids = held(3, 6)
        collect(queries, 0, 3, bars, sizes, best, ids, 0, 3)
        full = np.zeros(3, dtype=bool)
        decide(labels, queries, np.full(3, 0.5, np.float32), k, 3, sizes, best, ids, scores[:, :k].copy(),
               top_ids[:, :k].copy(), full, 0, 3)  # fmt: skip
        assert full.tolist() == crowded
    bars, sizes, best, ids = held(3, 6)
    collect(queries, 0, 3, bars, sizes, best, ids, 0, 3)
    full = np.zeros(3, dtype=bool)
    decide(labels, queries, np.full(3, 1, np.float32), 2, 3, sizes, best, ids, scores, top_ids, full, 0, 3)
    assert full.tolist() == [True, True, False]  # the third best lies at most 1 below the second
    assert top_ids[2].tolist() == [0, 1]
    assert scores[2].tolist() == [9, 8]


def test_rank_sorts_the_candidates():
    labels = np.array([[1.0], [3.0], [3.0], [2.0]], dtype=np.float32)
    proposed = np.array([[3, 2, -1, 1], [-1, -1, -1, 0]])
    scores, top_ids = np.empty((2, 3), dtype=np.float32), np.empty((2, 3), dtype=np.int64)
    sizes = np.empty(2, dtype=np.int64)
    rank(labels, np.ones((2, 1), dtype=np.float32), proposed, scores, top_ids, sizes, 0, 2)
    assert top_ids.tolist() == [[1, 2, 3], [0, -1, -1]]
    assert scores.tolist() == [[3, 3, 2], [1, NONE, NONE]]
    assert sizes.tolist() == [3, 1]


def test_products_are_those_of_float64_and_the_same_bits_wherever_a_row_lies():
    rng = np.random.default_rng(0)
    for width in (1, 7, 8, 97):
        labels = rng.standard_normal((50, width), dtype=np.float32)
        queries = rng.standard_normal((4, width), dtype=np.float32)
        proposed = np.tile(np.arange(50), (4, 1))
        results = []
        for rows in (labels, np.pad(labels, ((0, 0), (0, 3)))[:, :width]):
            scores, ids = np.empty((4, 50), dtype=np.float32), np.empty((4, 50), dtype=np.int64)
            rank(rows, queries, proposed, scores, ids, np.empty(4, dtype=np.int64), 0, 4)
            results.append((scores, ids))
        np.testing.assert_array_equal(results[0][0], results[1][0])
        np.testing.assert_array_equal(results[0][1], results[1][1])
        want = np.take_along_axis(queries.astype(np.float64) @ labels.T.astype(np.float64), results[0][1], axis=1)
        np.testing.assert_allclose(results[0][0], want, rtol=1e-6, atol=1e-6)
