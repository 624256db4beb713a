import numpy as np
import pytest
from scipy import sparse

from megalabel.errors import DataError, SettingError
from megalabel.graphs import random_walk, walk_targets


def test_rows_are_divided_by_their_diagonal_clipped_and_cut():
    visits = sparse.csr_matrix([[10.0, 1, 4, 20], [0, 5, 0, 0], [3, 0, 0, 0], [1, 0, 0, 2]])
    found = walk_targets(visits, 0.1)
    assert found.toarray().tolist() == np.float32([[1, 0, 0.4, 1], [0, 1, 0, 0], [0, 0, 1, 0], [0.5, 0, 0, 1]]).tolist()
    assert found.dtype == np.float32
    assert found.has_canonical_format


def test_walks_of_a_set_become_targets():
    targets = sparse.csr_matrix((np.random.default_rng(0).random((60, 20)) < 0.15).astype(np.float32))
    found = walk_targets(random_walk(targets, seed=0), 0.2)
    assert np.array_equal(found.diagonal(), np.ones(20))
    assert np.all((found.data > 0.2) & (found.data <= 1))


def test_mistakes():
    with pytest.raises(SettingError, match="delta"):
        walk_targets(sparse.eye(3, format="csr"), 1.0)
    with pytest.raises(DataError, match="square"):
        walk_targets(sparse.csr_matrix((2, 3)))
    with pytest.raises(DataError, match="negative"):
        walk_targets(-sparse.eye(3, format="csr"))
