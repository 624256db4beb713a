import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from megalabel.errors import DataError, SettingError
from megalabel.graphs import normalise


@given(seed=st.integers(0, 10**6), labels=st.integers(1, 12), share=st.sampled_from([0.1, 0.4, 1.0]))
def test_equals_the_dense_formulas(seed, labels, share):
    rng = np.random.default_rng(seed)
    dense = np.float32((rng.random((labels, labels)) < share) * rng.uniform(0.1, 9, (labels, labels)))
    graph = sparse.csr_matrix(dense)
    by_row, by_column = dense.sum(axis=1, keepdims=True), dense.sum(axis=0, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        both = np.nan_to_num(dense / np.sqrt(by_row) / np.sqrt(by_column))
        rows = np.nan_to_num(dense / by_row)
    assert np.allclose(normalise(graph).toarray(), both, atol=1e-5)
    assert np.allclose(normalise(graph, "row").toarray(), rows, atol=1e-5)
    assert np.linalg.norm(normalise(graph).toarray(), 2) <= 1 + 1e-5
    assert np.array_equal(graph.toarray(), dense)


def test_mistakes():
    with pytest.raises(SettingError, match="did you mean 'symmetric'"):
        normalise(sparse.eye(2, format="csr"), "symetric")
    with pytest.raises(DataError, match="finite"):
        normalise(sparse.csr_matrix([[np.inf]]))
    with pytest.raises(DataError, match="square"):
        normalise(np.eye(2))
