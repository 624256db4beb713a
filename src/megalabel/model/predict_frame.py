"""Predict the labels of a data frame."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from megalabel.errors import DataError, SettingError
from megalabel.model.predict_file import predict_stream

if TYPE_CHECKING:
    from collections.abc import Sequence

    from megalabel.model.ensemble import Ensemble
    from megalabel.model.model import Model

__all__ = ["predict_frame"]


def predict_frame(
    model: Model | Ensemble, frame: Any, text_column: str | None = None, k: int = 5, **options: Any
) -> Any:
    """Return a pandas or polars frame with columns for the predicted labels of each row beside its own.

    The new columns hold lists, best first: ``labels`` (uids), ``label_texts`` and ``scores``. A column of the frame
    that is called like one of them becomes ``input_labels``, and so on. Rows and their index stay as they are.

    Args:
        model: a trained model, or an ensemble.
        frame: a pandas or polars frame.
        text_column: the column with the text; ``text``, ``title`` and similar names are found without.
        k: labels per text.
        options: of :func:`~megalabel.model.predict_file.predict_stream`: ``heads``, ``min_score``.

    >>> import pandas as pd
    >>> from megalabel import load, train
    >>> data, small = load("synthetic:points=400,labels=30"), ["training.epochs=1", "batching.batch_size=64"]
    >>> model = train("unidec-cpu", data, changes=small)
    >>> frame = pd.DataFrame({"id": [7, 8], "body": data.test.texts[:2]}, index=["a", "b"])
    >>> predicted = predict_frame(model, frame, text_column="body", k=2)
    >>> list(predicted.columns), list(predicted.index), [len(labels) for labels in predicted["labels"]]
    (['id', 'body', 'labels', 'label_texts', 'scores'], ['a', 'b'], [2, 2])
    """
    kind = type(frame).__module__.partition(".")[0]
    if kind not in ("pandas", "polars") or not hasattr(frame, "columns"):
        raise SettingError(f"{type(frame).__name__} is no data frame", remedy="give one of pandas or polars")
    texts = _texts(frame, text_column)
    pairs = [(str(row), text) for row, text in enumerate(texts)]
    rows = [row.labels for block in predict_stream(model, pairs, k, **options) for row in block]
    new = {
        "labels": [[label.uid for label in row] for row in rows],
        "label_texts": [[label.text for label in row] for row in rows],
        "scores": [[label.score for label in row] for row in rows],
    }
    names = {name: f"input_{name}" for name in frame.columns if name in new}
    if kind == "pandas":
        import pandas as pd

        columns = {name: pd.Series(values, index=frame.index, dtype=object) for name, values in new.items()}
        return frame.rename(columns=names).assign(**columns)
    import polars as pl

    types = {"labels": pl.String, "label_texts": pl.String, "scores": pl.Float64}
    series = [pl.Series(name, values, dtype=pl.List(types[name])) for name, values in new.items()]
    return frame.rename(names).with_columns(series)


def _texts(frame: Any, column: str | None) -> Sequence[str]:
    """Return the texts of a frame."""
    from megalabel.data.formats._tables import TEXT, Table

    names = [str(name) for name in frame.columns]
    name = Table("the frame", names, lambda columns: iter(())).column(column, TEXT, "text")
    texts: list[Any] = list(frame[frame.columns[names.index(name)]])
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise DataError(
                f"row {row} of the frame has no text in the column {name!r}", remedy="fill in '' or drop it"
            )
    return texts
