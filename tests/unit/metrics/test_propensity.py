import numpy as np
import pytest
from scipy.sparse import csr_matrix

from megalabel.errors import DataError, SettingError
from megalabel.metrics import find_hits, inverse_propensity, psndcg, psp

GOLDEN = {
    (0.5, 0.4): [1.609228, 1.835854, 2.302585, 2.302585, 3.436914],
    (0.6, 2.6): [1.772482, 1.999251, 2.302585, 2.302585, 2.583447],
    (0.55, 1.5): [1.711852, 1.942771, 2.302585, 2.302585, 2.725134],
}


@pytest.mark.parametrize("constants", GOLDEN)
def test_golden_weights(constants):
    weights = inverse_propensity(np.array([6, 3, 1, 1, 0]), 10, *constants)
    np.testing.assert_allclose(weights, GOLDEN[constants], atol=1e-6)
    assert weights[2] == pytest.approx(np.log(10), abs=1e-12)


def test_worked_example(golden):
    ids, truth, counts, points = golden
    hits, weights = find_hits(ids, truth), inverse_propensity(counts, points)
    np.testing.assert_allclose(psp(hits, weights, [1, 3]), [0.254000, 1], atol=1e-6)
    np.testing.assert_allclose(psndcg(hits, weights, [1, 3]), [0.254000, 0.686375], atol=1e-6)


def test_equal_weights_give_the_share_of_the_best_total():
    hits = find_hits(np.array([[0, 1], [2, 0]]), csr_matrix([[1, 1, 1], [1, 0, 0]]))
    assert psp(hits, np.full(3, 7.0), [1, 2]) == pytest.approx([1 / 2, 3 / 3])


def test_no_truth_gives_zero():
    hits = find_hits(np.array([[0, 1]]), csr_matrix((1, 3)))
    assert psp(hits, np.ones(3), [1]).tolist() == psndcg(hits, np.ones(3), [1]).tolist() == [0]


def test_few_points_never_give_negative_weights():
    for points in (0, 1, 2):
        assert inverse_propensity(np.zeros(3, dtype=int), points, 0.5, 0.4).tolist() == [1, 1, 1]


def test_invalid_input_is_named_in_the_error():
    with pytest.raises(DataError, match="the 10 training points"):
        inverse_propensity(np.array([11]), 10)
    with pytest.raises(DataError, match="from 0"):
        inverse_propensity(np.array([-1]), 10)
    with pytest.raises(SettingError, match="B above 0"):
        inverse_propensity(np.array([1]), 10, 0.5, 0.0)
    with pytest.raises(SettingError, match="A = nan"):
        inverse_propensity(np.array([1]), 10, float("nan"), 1.0)
    with pytest.raises(DataError, match="2 label weights for 3 labels"):
        psp(find_hits(np.array([[0]]), csr_matrix((1, 3))), np.ones(2), [1])
