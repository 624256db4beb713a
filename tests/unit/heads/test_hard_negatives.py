"""Mined pairs against sorting the memory's scores by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from megalabel.errors import DataError, SettingError
from megalabel.heads import Memory, hard_negatives


def draw(seed, rows, columns, density=0.4):
    rng = np.random.default_rng(seed)
    return sparse.random(rows, columns, density=density, format="csr", dtype=np.float32, rng=rng)


@settings(max_examples=40)
@given(st.integers(1, 20), st.integers(1, 6), st.booleans(), st.integers(0, 9_999))
def test_the_best_wrong_labels_of_the_other_rows(rows, per_row, filtered, seed):
    x, y = draw(seed, rows, 9), draw(seed + 1, rows, 7)
    out = draw(seed + 2, rows, 7, density=0.2) if filtered else None
    memory = Memory(nearest=5).fit(x, y)
    found = hard_negatives(memory, x, y, out, per_row=per_row)
    scores = memory.scores(x, rows=np.arange(rows)).toarray()
    scores[y.toarray() > 0] = 0
    if out is not None:
        scores[out.toarray() > 0] = 0
    expected = np.zeros_like(scores)
    for i, line in enumerate(scores):
        best = np.lexsort((np.arange(7), -line))[:per_row]
        expected[i, best] = line[best]
    assert np.array_equal(found.toarray(), expected)
    assert found.nnz == np.count_nonzero(expected) and found.has_sorted_indices


def test_bad_input():
    x, y = draw(0, 6, 5), draw(1, 6, 4)
    memory = Memory().fit(x, y)
    with pytest.raises(SettingError, match="per_row must be at least 1"):
        hard_negatives(memory, x, y, per_row=0)
    with pytest.raises(DataError, match="targets must be a sparse matrix 6 x 4"):
        hard_negatives(memory, x, y[:, :3])
    with pytest.raises(DataError, match="exclude must be a sparse matrix 6 x 4"):
        hard_negatives(memory, x, y, y[:5])
