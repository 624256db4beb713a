import numpy as np
import pytest
from scipy.sparse import csr_matrix

from megalabel.errors import SettingError
from megalabel.metrics import find_hits, hit_rate, mrr, ndcg, precision, r_precision, recall

ALL = [hit_rate, mrr, ndcg, precision, r_precision, recall]


def test_worked_example(golden):
    ids, truth, *_ = golden
    hits = find_hits(ids, truth)
    np.testing.assert_allclose(precision(hits, [1, 3]), [0.333333, 0.555556], atol=1e-6)
    np.testing.assert_allclose(recall(hits, [1, 3]), [0.166667, 1], atol=1e-6)
    np.testing.assert_allclose(ndcg(hits, [1, 3]), [0.333333, 0.704382], atol=1e-6)
    np.testing.assert_allclose(mrr(hits, [1, 2, 3]), [1 / 3, 0.5, (1 + 1 / 2 + 1 / 3) / 3], atol=1e-12)
    np.testing.assert_allclose(hit_rate(hits, [1, 2, 3]), [1 / 3, 2 / 3, 1], atol=1e-12)
    np.testing.assert_allclose(r_precision(hits, [1, 2, 3]), [1 / 3, (1 / 2 + 1 / 2) / 3, 1], atol=1e-12)


def test_missing_predictions_are_misses():
    hits = find_hits(np.array([[0, -1]]), csr_matrix([[1, 1, 0]]), 5)
    assert precision(hits, [5]) == pytest.approx(0.2)
    assert recall(hits, [5]) == pytest.approx(0.5)
    assert r_precision(hits, [5]) == pytest.approx(0.5)
    assert ndcg(hits, [5]) == pytest.approx(1 / (1 + 1 / np.log2(3)))


@pytest.mark.parametrize("metric", ALL)
def test_a_perfect_ranking_and_an_empty_one(metric):
    truth = csr_matrix([[1, 1, 0], [1, 1, 0]])
    assert metric(find_hits(np.array([[0, 1], [1, 0]]), truth), [2]) == pytest.approx(1)
    assert metric(find_hits(np.array([[-1], [-1]]), truth, 2), [1, 2]).tolist() == [0, 0]


@pytest.mark.parametrize("metric", ALL)
def test_rows_without_truth_count_zero(metric):
    both = metric(find_hits(np.array([[0, 1], [0, 1]]), csr_matrix([[1, 1], [0, 0]])), [1, 2])
    alone = metric(find_hits(np.array([[0, 1]]), csr_matrix([[1, 1]])), [1, 2])
    np.testing.assert_allclose(both, alone / 2)


@pytest.mark.parametrize("metric", ALL)
def test_k_beyond_max_k_is_refused(metric):
    with pytest.raises(SettingError, match="k = 3"):
        metric(find_hits(np.array([[0, 1]]), csr_matrix([[1, 1]])), [1, 3])


@pytest.mark.parametrize("metric", ALL)
def test_any_order_of_ks_in_float64(metric, golden):
    hits = find_hits(golden[0].astype(np.int32), golden[1])
    assert metric(hits, [3, 1]).tolist() == metric(hits, [1, 3]).tolist()[::-1]
    assert metric(hits, [1]).dtype == np.float64
