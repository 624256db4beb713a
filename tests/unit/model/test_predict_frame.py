"""Frames of pandas and polars in and out."""

import pytest

import megalabel as ml
from megalabel.errors import DataError, SettingError


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_columns_are_added(model, data, kind):
    frames = pytest.importorskip(kind)
    texts = list(data.test.texts[:3])
    frame = frames.DataFrame({"number": [3, 1, 2], "title": texts, "labels": ["x", "y", "z"]})
    predicted = ml.predict_frame(model, frame, k=2)
    expected = model.predict(texts, 2)
    assert list(predicted.columns) == ["number", "title", "input_labels", "labels", "label_texts", "scores"]
    assert [list(row) for row in predicted["labels"]] == [[label.uid for label in best] for best in expected]
    assert list(predicted["number"]) == [3, 1, 2] and list(frame.columns) == ["number", "title", "labels"]
    assert len(ml.predict_frame(model, frame[:0], k=2)) == 0


def test_mistakes(model):
    pandas = pytest.importorskip("pandas")
    with pytest.raises(SettingError, match="list is no data frame"):
        ml.predict_frame(model, ["a text"])
    with pytest.raises(DataError, match="no text column among: a"):
        ml.predict_frame(model, pandas.DataFrame({"a": [1]}))
    with pytest.raises(DataError, match="row 1 of the frame has no text in the column 'text'"):
        ml.predict_frame(model, pandas.DataFrame({"text": ["a", None]}))
