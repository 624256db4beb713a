import numpy as np
import pytest
from scipy.sparse import csr_matrix

from megalabel.metrics import coverage, find_hits, macro


def test_worked_example(golden):
    ids, truth, *_ = golden
    np.testing.assert_allclose(coverage(find_hits(ids, truth), [1, 3]), [0.25, 1])


def test_macro_by_hand():
    # label 0: predicted twice, right once, relevant twice; label 1: relevant once, never predicted;
    # label 2: predicted once, wrongly; label 3: nowhere.
    truth = csr_matrix([[1, 0, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0]])
    values = macro(find_hits(np.array([[0], [2], [0]]), truth), [1])
    assert values.precision == pytest.approx(0.5 / 4)
    assert values.recall == pytest.approx(0.5 / 4)
    assert values.f1 == pytest.approx(2 / 4 / 4)


def test_any_order_of_ks_and_k_beyond_the_width():
    hits = find_hits(np.array([[0, 1], [2, -1]]), csr_matrix([[1, 1, 0], [0, 1, 0]]), 4)
    up, down = macro(hits, [1, 2, 4]), macro(hits, [4, 2, 1])
    for one, other in zip(up, down, strict=True):
        assert one.tolist() == other.tolist()[::-1]
        assert one[1] == one[2]
    assert coverage(hits, [4, 1]).tolist() == [1, 0.5]


def test_no_truth_gives_zero():
    hits = find_hits(np.array([[0, 1]]), csr_matrix((1, 3)))
    assert coverage(hits, [1]).tolist() == [0]
    assert [value.tolist() for value in macro(hits, [1])] == [[0], [0], [0]]


def test_input_is_not_changed(golden):
    ids, truth, *_ = golden
    before = ids.copy()
    macro(find_hits(ids, truth), [1, 2, 3])
    np.testing.assert_array_equal(ids, before)
