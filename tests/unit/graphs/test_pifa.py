import numpy as np
import pytest
from scipy import sparse

from megalabel.errors import DataError
from megalabel.graphs import pifa


def test_sparse_and_dense_features_agree_with_the_loop():
    rng = np.random.default_rng(0)
    features = np.float32((rng.random((40, 9)) < 0.4) * rng.random((40, 9)))
    targets = sparse.csr_matrix(np.float32(rng.random((40, 12)) < 0.1) * 0.5)
    wanted = np.zeros((12, 9))
    for label in range(12):
        total = features[targets[:, [label]].toarray()[:, 0] > 0].sum(axis=0)
        wanted[label] = total / (np.linalg.norm(total) or 1)
    dense, few = pifa(features, targets), pifa(sparse.csr_matrix(features), targets)
    assert np.allclose(dense, wanted, atol=1e-6)
    assert np.allclose(few.toarray(), wanted, atol=1e-6)
    assert dense.dtype == few.dtype == np.float32


def test_numbers_of_points_must_match():
    with pytest.raises(DataError, match="give one row per point"):
        pifa(np.ones((3, 2)), sparse.csr_matrix([[1.0]]))
