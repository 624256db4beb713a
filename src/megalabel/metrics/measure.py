"""Measure rankings of the points of a data set with its filter pairs and propensities."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_matrix

from megalabel.metrics.evaluate import evaluate

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from megalabel.data.dataset import Dataset
    from megalabel.metrics.report import Report

__all__ = ["measure"]


def measure(data: Dataset, ids: NDArray[np.integer[Any]], split: str = "test", *, annif: bool = False) -> Report:
    """Measure label ids [N, K], best first, for the rows of a split.

    Filter pairs leave the rankings before the cut to k; propensities come from the
    counts, points, A and B that the set carries; without train rows there are none. Ids
    beyond the labels of the set stand for labels it does not have. ``annif`` as in
    :func:`~megalabel.metrics.evaluate.evaluate`.

    >>> from megalabel import load
    >>> data = load("synthetic:points=300,labels=40")
    >>> import numpy as np
    >>> report = measure(data, np.tile(np.argsort(-data.counts, kind="stable")[:5], (60, 1)))
    >>> 0 < report.metrics["P@1"] < 100
    True
    """
    part = data.split(split)
    A, B = data.propensity
    targets, counts = part.targets, data.counts
    more = int(ids.max(initial=-1)) + 1 - len(data.labels)
    if more > 0:  # wrong in every row
        targets = csr_matrix((targets.data, targets.indices, targets.indptr), (len(part), len(data.labels) + more))
        counts = np.concatenate([counts, np.zeros(more, dtype=np.int64)])
    if not data.points:
        return evaluate(ids, targets, filter=part.filter, annif=annif)
    return evaluate(ids, targets, counts=counts, points=data.points, A=A, B=B, filter=part.filter, annif=annif)
