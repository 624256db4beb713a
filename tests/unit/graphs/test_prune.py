import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from megalabel.errors import SettingError
from megalabel.graphs import prune


@given(
    seed=st.integers(0, 10**6),
    labels=st.integers(1, 12),
    top=st.one_of(st.none(), st.integers(1, 13)),
    min_weight=st.sampled_from([0.0, 0.25, 0.5]),
    diagonal=st.booleans(),
)
def test_equals_sorting_each_row(seed, labels, top, min_weight, diagonal):
    rng = np.random.default_rng(seed)
    dense = np.float32(rng.integers(0, 5, (labels, labels)) / 4)
    wanted = np.zeros_like(dense)
    for row in range(labels):
        cells = [i for i in np.flatnonzero(dense[row]) if dense[row, i] >= min_weight or (diagonal and i == row)]
        cells.sort(key=lambda i: (not (diagonal and i == row), -dense[row, i], i))
        wanted[row, cells[:top]] = dense[row, cells[:top]]
    pruned = prune(sparse.csr_matrix(dense), top=top, min_weight=min_weight, diagonal=diagonal)
    assert np.array_equal(pruned.toarray(), wanted)
    assert pruned.has_canonical_format


def test_mistakes():
    with pytest.raises(SettingError, match="top"):
        prune(sparse.eye(2, format="csr"), top=0)
