"""Prediction in Spark; tests/packaging/test_bulk.py runs this file where pyspark is installed."""

import sys

import numpy as np
import pytest

import megalabel as ml
from megalabel.errors import MissingExtraError
from megalabel.integrations.spark import predict_udf


def test_without_its_package_it_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyspark.ml.functions", None)
    with pytest.raises(MissingExtraError, match=r"prediction in Spark needs .*pip install 'megalabel\[spark\]'"):
        predict_udf("run")


@pytest.mark.parametrize("k", [4, None])
def test_spark_agrees_with_predict(fused_run, served_data, k):
    sql = pytest.importorskip("pyspark.sql", reason="pyspark is not installed here")
    texts = [*ml.load(served_data).test.texts[:37], "", None]
    quiet = {"spark.ui.enabled": "false", "spark.log.level": "ERROR", "spark.sql.shuffle.partitions": "2"}
    session = sql.SparkSession.builder.master("local[2]").config(map=quiet).getOrCreate()
    try:
        frame = session.createDataFrame(list(enumerate(texts)), "row int, body string").repartition(2)
        predict = predict_udf(fused_run, k=k, batch_size=10, device="cpu")
        rows = frame.withColumn("predicted", predict("body")).select("row", "predicted.*").collect()
    finally:
        session.stop()
    expected = ml.Model.load(fused_run).predict([text or "" for text in texts], k)
    for row, labels in zip(sorted(rows, key=lambda row: row["row"]), expected, strict=True):
        assert list(row["labels"]) == [label.uid for label in labels]
        assert list(row["label_texts"]) == [label.text for label in labels]
        np.testing.assert_allclose(list(row["scores"]), [label.score for label in labels], atol=1e-5)
