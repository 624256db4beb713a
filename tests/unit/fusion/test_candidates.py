import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from megalabel.errors import DataError, SettingError
from megalabel.fusion import union
from megalabel.types import TopK


def top(rows):
    width = max((len(row) for row in rows), default=0)
    ids = np.array([[*row, *[-1] * (width - len(row))] for row in rows], dtype=np.int64).reshape(len(rows), width)
    return TopK(ids, np.where(ids < 0, -np.inf, 0.0).astype(np.float32))


rankings = st.lists(st.lists(st.integers(0, 12), max_size=6, unique=True), min_size=3, max_size=3)


@given(st.lists(rankings, min_size=1, max_size=4), st.sampled_from([None, 1, 2, 9]))
def test_equals_python_sets(heads, k):
    ids = union(*(top(rows) for rows in heads), k=k)
    expected = [sorted(set().union(*(rows[i][:k] for rows in heads))) for i in range(3)]
    assert [[label for label in row if label >= 0] for row in ids.tolist()] == expected
    assert ids.shape == (3, max(len(row) for row in expected)) and ids.dtype == np.int64
    assert all(row == sorted(row, key=lambda label: (label < 0, label)) for row in ids.tolist())  # padding is last


def test_no_queries():
    assert union(top([]), top([])).shape == (0, 0)


def test_mistakes():
    with pytest.raises(SettingError, match="no ranking"):
        union()
    with pytest.raises(SettingError, match="k must be"):
        union(top([[1]]), k=0)
    with pytest.raises(DataError, match=r"\[1, 2\] queries"):
        union(top([[1]]), top([[1], [2]]))
