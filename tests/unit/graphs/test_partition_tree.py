import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from megalabel.errors import SettingError
from megalabel.graphs import partition_tree


@given(st.integers(1, 300), st.sampled_from([2, 4, 16]))
def test_a_tree_of_even_depth_over_all_clusters(clusters, branches):
    levels = partition_tree(clusters, branches=branches)
    above = 1
    for parents in levels:
        assert np.all(np.diff(parents) >= 0)  # children of near parents are near
        children = np.bincount(parents, minlength=above)
        assert len(children) == above
        assert children.min() >= 1
        assert children.max() <= branches
        above = len(parents)
    assert above == clusters


def test_subtrees_are_balanced():
    counts = np.ones(100, dtype=np.int64)
    for parents in reversed(partition_tree(100)):
        counts = np.bincount(parents, counts).astype(np.int64)
        assert counts.max() - counts.min() <= max(1, counts.max() // 2)
    assert counts.tolist() == [100]


def test_mistakes():
    for branches in (0, 1, 3):
        with pytest.raises(SettingError, match="power of two"):
            partition_tree(4, branches=branches)
    with pytest.raises(SettingError, match="clusters"):
        partition_tree(0)
