"""Prediction in Ray; tests/packaging/test_bulk.py runs this file where ray is installed."""

import numpy as np
import pytest

import megalabel as ml
from megalabel.errors import DataError
from megalabel.integrations.ray import RayPredictor

pyarrow = pytest.importorskip("pyarrow")


@pytest.fixture(scope="module")
def texts(served_data):
    return [*ml.load(served_data).test.texts[:37], "", None]


def same(rows, model, texts, k):
    expected = model.predict([text or "" for text in texts], k)
    by_row = sorted(rows, key=lambda row: row["row"])
    assert [row["labels"] for row in by_row] == [[label.uid for label in row] for row in expected]
    assert [row["label_texts"] for row in by_row] == [[label.text for label in row] for row in expected]
    ours = [score for row in by_row for score in row["scores"]]
    np.testing.assert_allclose(ours, [label.score for row in expected for label in row], atol=1e-5)


@pytest.mark.parametrize("k", [3, None])
def test_a_batch_has_what_predict_returns(fused_run, texts, k):
    table = pyarrow.table({"row": range(len(texts)), "body": texts})
    rows = RayPredictor(fused_run, text_column="body", k=k)(table).to_pylist()
    same(rows, ml.Model.load(fused_run), texts, k)


def test_wrong_batches_are_one_line(summed_run):
    predictor = RayPredictor(summed_run)
    with pytest.raises(DataError, match='a batch is a dict; set batch_format="pyarrow" in map_batches'):
        predictor({"text": ["a"]})
    with pytest.raises(DataError, match="a batch has no column 'text'; set text_column to one of: body"):
        predictor(pyarrow.table({"body": ["a"]}))


def test_two_workers_of_ray_agree_with_predict(summed_run, texts):
    ray = pytest.importorskip("ray", reason="ray is not installed here")
    ray.init(num_cpus=3, include_dashboard=False, object_store_memory=100 << 20, logging_level="error")
    try:
        ray.data.DataContext.get_current().enable_progress_bars = False
        table = pyarrow.table({"row": range(len(texts)), "body": texts})
        rows = ray.data.from_arrow([table.slice(start, 15) for start in range(0, len(texts), 15)])
        options = {"run": str(summed_run), "text_column": "body", "k": 4, "device": "cpu"}
        predicted = rows.map_batches(
            RayPredictor, fn_constructor_kwargs=options, batch_format="pyarrow", batch_size=10, concurrency=2
        )
        same(predicted.take_all(), ml.Model.load(summed_run), texts, 4)
    finally:
        ray.shutdown()
