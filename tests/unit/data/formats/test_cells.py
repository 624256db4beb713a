import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from megalabel.data.dataset import Labels
from megalabel.data.formats._cells import Splitter, joiner, parse_cell, parse_weights, resolve

names = st.text(st.sampled_from('ab|;, \x1e\x1f[]"\\1'), max_size=4)


@given(st.lists(names, min_size=1, max_size=6, unique=True), st.data())
def test_joined_labels_are_split_again(uids, data):
    """Whatever the uids are, the reader finds the separator the writer chose."""
    rows = data.draw(st.lists(st.lists(st.integers(0, len(uids) - 1), unique=True), min_size=1, max_size=6))
    join, _ = joiner(uids)
    cells = [parse_cell(join([uids[i] for i in row]) if row else "") for row in rows]
    way, look_up = resolve(cells, Labels(uids, uids), None)
    assert [[look_up(str(token)) for token in way.tokens(cell)] for cell in cells] == rows


@given(st.lists(st.floats(2.0**-149, 1, width=32), min_size=1), st.booleans())
def test_weights_come_back_exactly(weights, listed):
    _, join = joiner(["[" if listed else "a"])
    parsed = parse_weights(join(weights), Splitter("|", strip=False))
    assert np.float32(parsed).tolist() == weights


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        (None, ""),
        (float("nan"), ""),
        ("", ""),
        ("a", "a"),
        ("[1, 2]", (1, 2)),
        ("[1, 2.5]", "[1, 2.5]"),
        ("[null]", "[null]"),
        ("[", "["),
        ("[" * 500 + "]" * 500, "[" * 500 + "]" * 500),
        (["a", 3], ("a", 3)),
        (5, (5,)),
        (np.int64(5), (5,)),
        ([np.int64(5), np.str_("a")], (5, "a")),
        (np.array(["a", "b"], dtype=object), ("a", "b")),
    ],
)
def test_cells(value, cell):
    assert parse_cell(value) == cell


@pytest.mark.parametrize("value", [True, 1.5, [None], [1.0], [True], {"a": 1}, [["a"]]])
def test_cells_that_hold_no_labels(value):
    with pytest.raises(ValueError, match="neither a text nor a whole number"):
        parse_cell(value)
