"""Every form of y is read, and predictions are written in the same form."""

import numpy as np
import pytest
from scipy import sparse

from megalabel.integrations._targets import InputError, read_targets

NAMES = [["b", "a"], ["a"], ["a", "a"]]
MATRIX = np.array([[1, 1], [1, 0], [1, 0]])


@pytest.mark.parametrize(
    ("y", "separator", "kind"),
    [
        (NAMES, None, "lists"),
        ([set(row) for row in NAMES], None, "lists"),
        (np.array([None, *NAMES], dtype=object)[1:], None, "lists"),
        (["b, a", "a", "a, ,a"], ",", "joined"),
        (["b a", "a", "a  a"], " ", "joined"),
        (MATRIX, None, "dense"),
        (MATRIX.tolist(), None, "dense"),
        (MATRIX.astype(bool), None, "dense"),
        (list(MATRIX), None, "dense"),
        (sparse.csr_matrix(MATRIX), None, "sparse"),
        (sparse.coo_array(MATRIX), None, "sparse"),
    ],
)
def test_several_labels(y, separator, kind):
    targets = read_targets(y, separator)
    assert targets.form.kind == kind and len(targets) == 3
    assert targets.relevant.toarray().tolist() == MATRIX.tolist()
    assert targets.form.classes.tolist() == (["a", "b"] if kind in ("lists", "joined") else [0, 1])
    assert targets.form.usual == 0
    written = targets.form.written([[1, 0], [], [0]])
    if kind == "lists":
        assert written.tolist() == [["b", "a"], [], ["a"]]
    elif kind == "joined":
        assert written.tolist() == [separator.join("ba") if separator == " " else "b, a", "", "a"]
    else:
        assert sparse.issparse(written) == (kind == "sparse")
        dense = written.toarray() if kind == "sparse" else written
        assert dense.tolist() == [[1, 1], [0, 0], [1, 0]] and dense.dtype == targets.form.dtype


@pytest.mark.parametrize(
    "y",
    [
        ["b", "a", "a"],
        np.array(["b", "a", "a"]),
        [[["b"]][0], ["a"], ["a"]],
        [7, 3, 3],
        [True, False, False],
        [2.0, 1.0, 1.0],
    ],
)
def test_one_label_for_each_text(y):
    targets = read_targets(y)
    assert targets.relevant.toarray().tolist() == [[0, 1], [1, 0], [1, 0]]
    expected = [["b"], ["a"], ["a"]] if targets.form.kind == "lists" else list(np.asarray(y))
    assert targets.form.written([[1], [0], []]).tolist() == (
        expected if targets.form.kind != "lists" else [["b"], ["a"], []]
    )


def test_a_frame_names_the_columns():
    pandas = pytest.importorskip("pandas")
    targets = read_targets(pandas.DataFrame(MATRIX, columns=["hat", "shoe"]))
    assert targets.form.classes.tolist() == ["hat", "shoe"] and targets.form.kind == "dense"
    assert read_targets(pandas.Series(["b", "a"])).form.kind == "column"
    with pytest.warns(Warning, match="column-vector"):
        assert read_targets(pandas.DataFrame({"name": ["b", "a"]})).form.kind == "column"


def test_texts_of_labels():
    targets, texts = read_targets(NAMES).described({"b": "bee", "c": "sea"})
    assert targets.form.classes.tolist() == ["a", "b", "c"] and texts == ["a", "bee", "sea"]
    assert targets.relevant.toarray().tolist() == [[1, 1, 0], [1, 0, 0], [1, 0, 0]]
    assert read_targets(MATRIX).described(["one", "two"])[1] == ["one", "two"]
    assert read_targets(MATRIX).described({1: "two"})[1] == ["0", "two"]
    assert read_targets([7, 3]).described({7: "seven"})[1] == ["3", "seven"]


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (None, "y is None"),
        (np.zeros((2, 2, 2)), "3 dimensions"),
        ([[0, 2], [1, 1]], "no indicator matrix"),
        ([[0, np.nan], [1, 1]], "no indicator matrix"),
        ([0.5, 1.25], "Unknown label type"),
        ([1.0, np.nan], "contains NaN"),
        ([["a"], 3], "y.1. is 3"),
        ([["a"], [3]], "list of names"),
        ([b"a", b"b"], "y.0. is b'a'"),
    ],
)
def test_mistakes(y, message):
    with pytest.raises(InputError, match=message):
        read_targets(y)
