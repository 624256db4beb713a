"""The k best rows, against sorting everything."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from megalabel.heads.sparse.heap import push, sort_heap


@given(st.lists(st.integers(-3, 3), max_size=30), st.integers(1, 12))
def test_the_best_rows_come_first_and_ties_by_id(scores, k):
    ids, best, size = np.full(k, -1, dtype=np.int64), np.full(k, -np.inf, dtype=np.float32), 0
    order = np.random.default_rng(len(scores)).permutation(len(scores))
    for row in order:  # in any order
        size = push(ids, best, size, row, np.float32(scores[row]))
    sort_heap(ids, best, size)
    expected = sorted(range(len(scores)), key=lambda row: (-scores[row], row))[:k]
    assert size == len(expected)
    assert ids[:size].tolist() == expected
    assert best[:size].tolist() == [scores[row] for row in expected]
