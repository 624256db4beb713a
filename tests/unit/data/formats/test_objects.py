import sys

import datasets
import numpy as np
import pandas as pd
import polars as pl
import pytest

from megalabel.data.dataset import Dataset
from megalabel.data.formats.objects import from_frames, to_frames
from megalabel.errors import DataError, SettingError

ROWS = {"title": ["one", "two", "three"], "tags": [["b", "a"], [], ["b"]]}
MAKERS = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "datasets": datasets.Dataset.from_dict}


@pytest.fixture(params=MAKERS)
def frame(request):
    return MAKERS[request.param]


def dense(split):
    return split.targets.toarray().tolist()


def test_lists_of_names(frame):
    data = from_frames(frame(ROWS), frame(ROWS), name="LF-Amazon-131K")
    assert data.labels.uids == ["a", "b"]
    assert dense(data.train) == [[1, 1], [0, 0], [0, 1]]
    assert data.train.uids == ["trn-0", "trn-1", "trn-2"]
    assert (data.name, data.propensity) == ("LF-Amazon-131K", (0.6, 2.6))


def test_numbers_count_the_rows_of_the_labels(frame):
    rows = frame({"text": ["one", "two"], "labels": [[1, 0], [1]]})
    labels = frame({"uid": ["x", "y"], "text": ["ex", "why"]})
    assert dense(from_frames(rows, rows, labels=labels).train) == [[1, 1], [0, 1]]
    assert from_frames(rows, rows, labels=["ex", "why"]).labels.texts == ["ex", "why"]


def test_numbers_that_are_uids(frame):
    rows = frame({"text": ["one", "two"], "labels": [[10, 20], [20]]})
    labels = frame({"uid": [20, 10], "text": ["twenty", "ten"]})
    assert dense(from_frames(rows, rows, labels=labels).train) == [[1, 1], [1, 0]]


def test_separated_texts_weights_and_given_columns(frame):
    rows = frame({"q": ["one", "two"], "l": ["a/b", "b"], "key": [7, 8], "weights": [[0.5, 1.0], [0.25]]})
    data = from_frames(rows, rows, text_column="q", labels_column="l", uid_column="key", separator="/")
    assert data.train.uids == ["7", "8"]
    np.testing.assert_array_equal(data.train.targets.toarray(), [[0.5, 1], [0, 0.25]])


def test_test_rows_are_held_out_where_there_are_none(frame):
    rows = frame({"text": [f"text {i}" for i in range(50)], "labels": [["x", "y"]] * 50})
    data = from_frames(rows, test_share=0.2, seed=3)
    assert (len(data.train), len(data.test)) == (40, 10)
    assert data.test.texts == from_frames(rows, test_share=0.2, seed=3).test.texts


def test_a_split_column(frame):
    rows = {"text": ["one", "two", "three"], "labels": [["x"], ["x"], ["x"]], "split": ["train", "test", "validation"]}
    data = from_frames(frame(rows))
    assert (data.train.texts, data.test.texts, data.val.texts) == (["one"], ["two"], ["three"])


def test_a_dataset_dict_brings_its_own_splits():
    part = datasets.Dataset.from_dict(ROWS)
    data = from_frames(datasets.DatasetDict({"train": part, "validation": part, "test": part}))
    assert list(data.splits) == ["train", "val", "test"]
    with pytest.raises(DataError, match="split 'unsupervised'"):
        from_frames(datasets.DatasetDict({"train": part, "unsupervised": part}))


def test_class_labels_of_a_dataset_have_names():
    names = ["2", "1", "neutral"]  # names that look like numbers must not be taken for them
    features = {"text": datasets.Value("string"), "labels": datasets.List(datasets.ClassLabel(names=names))}
    rows = {"text": ["one", "two"], "labels": [[0, 1], [2]]}
    data = datasets.Dataset.from_dict(rows, features=datasets.Features(features))
    result = from_frames(data, data)
    assert result.labels.texts == names
    assert dense(result.train) == [[1, 1, 0], [0, 0, 1]]
    single = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["a,b", "c"])})
    data = datasets.Dataset.from_dict({"text": ["one", "two", "three"], "label": [1, 0, -1]}, features=single)
    assert dense(from_frames(data, data).train) == [[0, 1], [1, 0], [0, 0]]


def test_selected_rows_and_formats_of_a_dataset():
    rows = datasets.Dataset.from_dict(ROWS).select([2, 0]).with_format("numpy")
    assert from_frames(rows, rows).train.texts == ["three", "one"]


def test_missing_values_of_pandas():
    rows = pd.DataFrame({"text": ["one", "two"], "labels": ["a|b", None]})
    assert dense(from_frames(rows, rows).train) == [[1, 1], [0, 0]]
    rows = pd.DataFrame({"text": ["one", None], "labels": ["a|b", "a"]})
    with pytest.raises(DataError, match="the train frame:2: the text of this row is missing"):
        from_frames(rows)


def test_arrays_in_a_pandas_column():
    rows = pd.DataFrame({"text": ["one", "two"], "labels": [np.array([1, 0]), np.array([1])]})
    assert dense(from_frames(rows, rows, labels=["x", "y"]).train) == [[1, 1], [0, 1]]


def test_mistakes_give_one_line(frame):
    good = frame(ROWS)
    with pytest.raises(DataError, match=r"the test frame: no text column among: foo, tags; .*text_column="):
        from_frames(good, frame({"foo": ["x"], "tags": [["a"]]}))
    with pytest.raises(DataError, match="the train frame:1: label 'b' is not in the label table"):
        from_frames(good, good, labels=frame({"uid": ["a"], "text": ["a"]}))
    with pytest.raises(DataError, match="the train frame:2: label id 5 is out of range"):
        rows = frame({"text": ["x", "y"], "labels": [[0], [5]]})
        from_frames(rows, rows, labels=["ex", "why"])
    with pytest.raises(DataError, match="the train frame is a list"):
        from_frames([("text", ["a"])])


def test_frames_of_an_unknown_kind():
    data = Dataset.from_lists([("a", [0])], [("b", [0])], ["x"])
    with pytest.raises(SettingError, match="did you mean 'pandas'"):
        to_frames(data, "panda")


def test_a_missing_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(SettingError, match="polars is not installed; pip install polars"):
        to_frames(Dataset.from_lists([("a", [0])], [("b", [0])], ["x"]), "polars")


def test_weights_only_where_some_are_not_one():
    data = Dataset.from_lists([("a", [0]), ("b", [])], [("c", [0])], ["x"])
    soft = data.replace(test=data.test.__class__(["c"], data.test.targets * np.float32(0.5), ["t"]))
    frames = to_frames(soft, "polars")
    assert frames["train"].columns == ["uid", "text", "labels"]
    assert frames["test"]["weights"].to_list() == [[0.5]]
    assert frames["train"]["labels"].to_list() == [["lbl-0"], []]
