import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from megalabel.errors import DataError
from megalabel.metrics import drop_filtered


@st.composite
def rankings_and_pairs(draw):
    rows, labels = draw(st.integers(0, 6)), draw(st.integers(1, 8))
    width = draw(st.integers(0, labels + 2))
    ids = np.full((rows, width), -1, dtype=draw(st.sampled_from([np.int32, np.int64])))
    for row in ids:
        ranking = draw(st.lists(st.integers(0, labels - 1), unique=True, max_size=width))
        row[: len(ranking)] = ranking
    count = draw(st.integers(0, 20)) if rows else 0
    pair = st.tuples(st.integers(0, max(0, rows - 1)), st.integers(0, labels - 1))
    pairs = draw(st.lists(pair, min_size=count, max_size=count))
    return ids, np.array(pairs, dtype=np.int64).reshape(-1, 2)


@given(rankings_and_pairs())
def test_equals_the_loop(oracle, case):
    ids, pairs = case
    before = ids.copy()
    out = drop_filtered(ids, pairs)
    assert out.tolist() == oracle.drop_filtered(ids, pairs)
    assert out.shape == ids.shape and out.dtype == ids.dtype
    np.testing.assert_array_equal(ids, before)


@given(rankings_and_pairs())
def test_duplicate_pairs_and_their_order_do_not_matter(case):
    ids, pairs = case
    once = drop_filtered(ids, pairs)
    np.testing.assert_array_equal(drop_filtered(once, pairs), once)
    np.testing.assert_array_equal(drop_filtered(ids, pairs[::-1]), once)


@given(rankings_and_pairs())
def test_no_pairs_and_pairs_not_predicted_change_nothing(case):
    ids, _ = case
    np.testing.assert_array_equal(drop_filtered(ids, np.empty((0, 2), dtype=np.int64)), ids)
    elsewhere = np.array([[row, 99] for row in range(len(ids))], dtype=np.int64).reshape(-1, 2)
    np.testing.assert_array_equal(drop_filtered(ids, elsewhere), ids)


@pytest.mark.parametrize(
    ("pairs", "words"),
    [
        ([[0, 1], [2, 0]], r"filter pair 1 is \(row 2, label 0\), there are 2 rows and 9 labels"),
        ([[-1, 0]], "row -1"),
        ([[0, -3]], "label -3"),
        ([[0, 9]], "label 9"),
        ([[0, 1, 2]], r"whole numbers \[n, 2\]"),
        ([[0.5, 1.0]], r"whole numbers \[n, 2\]"),
    ],
)
def test_invalid_pairs_are_named_in_the_error(pairs, words):
    with pytest.raises(DataError, match=words):
        drop_filtered(np.array([[0, 1], [2, 3]]), np.array(pairs), labels=9)
