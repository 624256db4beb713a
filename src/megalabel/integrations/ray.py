"""Predict the rows of a Ray data set: a class for ``map_batches``."""

from __future__ import annotations

from os import PathLike
from typing import Any

from megalabel.errors import DataError
from megalabel.integrations._bulk import predict_columns

__all__ = ["RayPredictor"]


class RayPredictor:
    """Adds the columns ``labels`` (uids), ``label_texts`` and ``scores`` to batches of rows, best label first.

    Each worker loads the model once. Batches are tables of Arrow::

        import ray
        from megalabel.integrations.ray import RayPredictor

        rows = ray.data.read_parquet("documents/")
        predicted = rows.map_batches(
            RayPredictor, fn_constructor_kwargs={"run": "runs/first", "text_column": "body", "k": 5},
            batch_format="pyarrow", batch_size=1024, concurrency=4,
        )
        predicted.write_parquet("predicted/")

    Args:
        run: a run folder or a saved model that every machine can read, or ``hf://OWNER/NAME``.
        text_column: the column with the text; a missing text has no labels.
        k: labels per text; None: those above the model's threshold, as for ``Model.predict``.
        device: where the network computes.
        options: of ``Model.predict``: ``goal``, ``precision``, ``heads``, ``tail``.
    """

    def __init__(
        self,
        run: str | PathLike[str],
        *,
        text_column: str = "text",
        k: int | None = None,
        device: str = "auto",
        **options: Any,
    ) -> None:
        from megalabel.model import Model

        self.model = Model.load(run, device=device)
        self.text_column, self.k, self.options = text_column, k, options

    def __call__(self, batch: Any) -> Any:
        """Return a table of Arrow with the new columns behind its own."""
        import pyarrow

        if not isinstance(batch, pyarrow.Table):
            raise DataError(f"a batch is a {type(batch).__name__}", remedy='set batch_format="pyarrow" in map_batches')
        if self.text_column not in batch.column_names:
            remedy = f"set text_column to one of: {', '.join(batch.column_names)}"
            raise DataError(f"a batch has no column {self.text_column!r}", remedy=remedy)
        columns = predict_columns(self.model, batch[self.text_column].to_pylist(), self.k, self.options)
        strings, numbers = pyarrow.list_(pyarrow.string()), pyarrow.list_(pyarrow.float32())
        for name, kind in (("labels", strings), ("label_texts", strings), ("scores", numbers)):
            batch = batch.append_column(name, pyarrow.array(getattr(columns, name), kind))
        return batch
