"""Measure rankings of the points of a data set with its filter pairs and propensities."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from megalabel.metrics.evaluate import evaluate

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from megalabel.data.dataset import Dataset
    from megalabel.metrics.report import Report

__all__ = ["measure"]


def measure(data: Dataset, ids: NDArray[np.integer[Any]], split: str = "test") -> Report:
    """Measure label ids [N, K], best first, for the rows of a split.

    Filter pairs leave the rankings before the cut to k; propensities come from the
    counts, points, A and B that the set carries.

    >>> from megalabel import load
    >>> data = load("synthetic:points=300,labels=40")
    >>> import numpy as np
    >>> report = measure(data, np.tile(np.argsort(-data.counts, kind="stable")[:5], (60, 1)))
    >>> 0 < report.metrics["P@1"] < 100
    True
    """
    part = data.split(split)
    A, B = data.propensity
    return evaluate(ids, part.targets, counts=data.counts, points=data.points, A=A, B=B, filter=part.filter)
