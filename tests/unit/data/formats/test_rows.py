import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from megalabel.data.formats._rows import RowCollector, read_filter, show_weight, write_pairs
from megalabel.errors import DataError


@given(st.lists(st.lists(st.integers(0, 9), unique=True), min_size=1, max_size=8))
def test_rows_become_a_matrix(rows):
    collector = RowCollector("x", 10)
    for line, ids in enumerate(rows):
        collector.add(line, ids)
    dense = collector.matrix().toarray()
    assert [sorted(ids) for ids in rows] == [np.flatnonzero(row).tolist() for row in dense]
    assert set(np.unique(dense)) <= {0.0, 1.0}


@given(st.lists(st.lists(st.integers(-1, 5), max_size=4), min_size=1, max_size=8))
def test_the_first_bad_row_is_named(rows):
    """Out of range is looked for first, then twice in a row."""
    collector = RowCollector("x", 5)
    for line, ids in enumerate(rows, start=1):
        collector.add(line, ids)
    outside = [line for line, ids in enumerate(rows, start=1) if any(not 0 <= i < 5 for i in ids)]
    twice = [line for line, ids in enumerate(rows, start=1) if len(set(ids)) < len(ids)]
    if outside or twice:
        with pytest.raises(DataError) as error:
            collector.matrix()
        assert error.value.line == (outside or twice)[0]
    else:
        assert collector.matrix().shape == (len(rows), 5)


@pytest.mark.parametrize("name", ["filter_tst.txt", "filter_labels_test.txt", "tst_filter_labels.txt"])
def test_filters_under_every_name(tmp_path, name):
    pairs = np.array([[3, 1], [0, 2]])
    (tmp_path / name).write_bytes(write_pairs(pairs) + b"\n")
    assert read_filter(tmp_path, "test", 4, 3).tolist() == pairs.tolist()
    assert read_filter(tmp_path, "train", 4, 3).tolist() == []


@pytest.mark.parametrize("line", ["1 x", "1", "1 2 3", "1.0 2", "a b", "\u0661 x", "1_0 2", "+1 2"])
def test_filter_lines_that_are_not_pairs(tmp_path, line):
    (tmp_path / "filter_trn.txt").write_text(f"0 0\n{line}\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"filter_trn.txt:2: expected two whole numbers"):
        read_filter(tmp_path, "train", 5, 5)


@pytest.mark.parametrize("line", ["5 0", "0 5", "-1 0", "0 -1", "99999999999999999999 0"])
def test_filter_pairs_out_of_range(tmp_path, line):
    (tmp_path / "filter_trn.txt").write_text(f"0 0\n{line}\n")
    with pytest.raises(DataError, match=r"filter_trn.txt:2: .*out of range of 5 rows and 5 labels"):
        read_filter(tmp_path, "train", 5, 5)


@given(st.floats(2.0**-149, 1, width=32))
def test_shown_weights_are_exact(value):
    assert np.float32(float(show_weight(value))) == np.float32(value)
