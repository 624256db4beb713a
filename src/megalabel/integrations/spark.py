"""Predict a column of a Spark data frame."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike, fspath
from typing import Any

from megalabel.errors import MissingExtraError
from megalabel.integrations._bulk import predict_columns

__all__ = ["predict_udf"]


def predict_udf(
    run: str | PathLike[str], *, k: int | None = None, batch_size: int = 1024, device: str = "auto", **options: Any
) -> Any:
    """Return a function of a text column whose result has the fields ``labels`` (uids), ``label_texts``, ``scores``.

    It is Spark's ``predict_batch_udf``: each Python worker loads the model once::

        from megalabel.integrations.spark import predict_udf

        predict = predict_udf("/mnt/shared/runs/first", k=5)
        predicted = frame.withColumn("predicted", predict("body"))
        predicted.select("id", "predicted.labels", "predicted.scores").write.parquet("predicted")

    Args:
        run: a run folder or a saved model that every worker can read, or ``hf://OWNER/NAME``.
        k: labels per text; None: those above the model's threshold, as for ``Model.predict``.
        batch_size: texts per call of the model.
        device: where the network computes.
        options: of ``Model.predict``: ``goal``, ``precision``, ``heads``, ``tail``.
    """
    try:
        from pyspark.ml.functions import predict_batch_udf
        from pyspark.sql.types import ArrayType, FloatType, StringType, StructField, StructType
    except ImportError:
        raise MissingExtraError("pyspark", extra="spark", what="prediction in Spark") from None
    folder = fspath(run)
    fields = {"labels": StringType(), "label_texts": StringType(), "scores": FloatType()}
    returned = StructType([StructField(name, ArrayType(kind)) for name, kind in fields.items()])

    def load() -> Callable[[Any], list[dict[str, Any]]]:
        import numpy as np

        from megalabel.model import Model

        model = Model.load(folder, device=device)

        def predict(texts: Any) -> list[dict[str, Any]]:
            columns = predict_columns(model, texts.tolist(), k, options)
            rows = zip(*columns, strict=True)
            return [
                {
                    "labels": np.array(uids, dtype=object),
                    "label_texts": np.array(names, dtype=object),
                    "scores": np.array(scores, dtype=np.float32),
                }
                for uids, names, scores in rows
            ]

        return predict

    return predict_batch_udf(load, return_type=returned, batch_size=batch_size)
