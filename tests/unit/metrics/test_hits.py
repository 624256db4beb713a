import numpy as np
import pytest
from scipy.sparse import coo_matrix, csr_array, csr_matrix

from megalabel.errors import DataError, SettingError
from megalabel.metrics import hits as module
from megalabel.metrics.hits import find_hits, locate

TRUTH = csr_matrix([[1, 0, 1, 0], [0, 0, 0, 0], [0, 1, 0, 1]])


def triples(hits):
    return list(zip(hits.row.tolist(), hits.rank.tolist(), hits.label.tolist(), strict=True))


def test_finds_row_rank_and_label():
    hits = find_hits(np.array([[2, 1, 0], [0, 1, 2], [3, -1, -1]]), TRUTH)
    assert triples(hits) == [(0, 2, 0), (0, 0, 2), (2, 0, 3)]
    assert hits.relevant.tolist() == [2, 0, 2]
    assert (hits.rows, hits.labels, hits.max_k) == (3, 4, 3)


def test_looks_no_further_than_max_k():
    hits = find_hits(np.array([[2, 1, 0], [0, 1, 2], [3, -1, -1]]), TRUTH, 1)
    assert triples(hits) == [(0, 0, 2), (2, 0, 3)]
    with pytest.raises(SettingError, match="k = 2; choose k from 1 to 1"):
        hits.at([1, 2])


def test_graded_values_stored_zeros_and_repeated_cells():
    graded = csr_matrix(TRUTH, dtype=np.float64)
    graded.data[:] = [0.25, 0.0, 0.5, 1e-9]
    assert triples(find_hits(np.array([[2, 0], [1, 0], [1, 3]]), graded)) == [(0, 1, 0), (2, 0, 1), (2, 1, 3)]
    assert graded.nnz == 4 and graded.data[0] == 0.25
    repeated = csr_matrix((np.ones(3), np.array([2, 0, 2]), np.array([0, 3])), shape=(1, 4))
    assert find_hits(np.array([[2]]), repeated).relevant.tolist() == [2]
    assert repeated.nnz == 3


@pytest.mark.parametrize("kind", [csr_array, coo_matrix])
@pytest.mark.parametrize("dtype", [np.int16, np.int32, np.uint32, np.uint64, np.int64])
def test_any_sparse_format_and_integer_type(kind, dtype):
    assert triples(find_hits(np.array([[2, 1], [0, 1], [3, 0]], dtype=dtype), kind(TRUTH))) == [(0, 0, 2), (2, 0, 3)]


def test_labels_beyond_the_type_of_the_ids():
    truth = csr_matrix((np.ones(2), ([0, 0], [7, 263])), shape=(1, 300))
    assert triples(find_hits(np.array([[7]], dtype=np.int8), truth)) == [(0, 0, 7)]


@pytest.mark.parametrize("cells", [1, 7, 64])
def test_block_size_does_not_matter(monkeypatch, cells):
    rng = np.random.default_rng(0)
    ids = np.array([rng.permutation(30)[:8] for _ in range(40)])
    truth = csr_matrix(rng.random((40, 30)) < 0.2)
    whole = triples(find_hits(ids, truth))
    monkeypatch.setattr(module, "_CELLS", cells)
    assert triples(find_hits(ids, truth)) == whole


def test_locate_reports_every_pair_once():
    pair, rank = locate(np.array([[4, 5], [5, 4]]), np.array([1, 0, 0]), np.array([4, 4, 9]))
    assert (pair.tolist(), rank.tolist()) == ([0, 1], [1, 0])


def test_empty_rankings_and_truth():
    assert triples(find_hits(np.empty((3, 0), dtype=np.int64), TRUTH, 5)) == []
    assert triples(find_hits(np.empty((0, 2), dtype=np.int64), csr_matrix((0, 4)))) == []


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        ([[0], [1]], "2 rankings for 3 rows of truth"),
        ([[0], [4], [1]], "row 1 holds label 4, the set has 4 labels; use ids from 0 to 3"),
        ([[0], [1], [-2]], "row 2 holds label -2"),
        ([[0, 1], [1, 2], [3, 3]], "duplicate label 3 in the ranking of row 2"),
        ([[0, 1], [-1, 2], [3, 1]], "row 1 continues after a -1"),
        ([[0.0], [1.0], [2.0]], "whole numbers"),
        ([0, 1, 2], "whole numbers"),
    ],
)
def test_invalid_rankings_are_named_in_the_error(ids, words):
    with pytest.raises(DataError, match=words):
        find_hits(np.array(ids), TRUTH)


def test_the_error_names_the_row_in_a_later_block():
    ids = np.tile(np.arange(100), (5000, 1))
    ids[4321, 99] = 3
    with pytest.raises(DataError, match="duplicate label 3 in the ranking of row 4321"):
        find_hits(ids, csr_matrix((5000, 100)))


def test_truth_must_be_sparse():
    with pytest.raises(DataError, match="sparse"):
        find_hits(np.array([[0]]), np.array([[1]]))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_truth_that_is_no_number(value):
    with pytest.raises(DataError, match="NaN or infinity"):
        find_hits(np.array([[0, 1]]), csr_matrix([[1.0, value]]))
