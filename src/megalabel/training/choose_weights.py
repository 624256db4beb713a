"""How much each head counts when their scores are added."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from megalabel.index import ExactIndex
from megalabel.metrics.measure import measure
from megalabel.training.vectors import LabelSide, fold_labels, fold_queries

if TYPE_CHECKING:
    from torch import Tensor

    from megalabel.data.dataset import Dataset
    from megalabel.metrics.report import Report

__all__ = ["choose_weights", "rank"]

STEPS = 10  # the share of the first head is tried in tenths


def rank(
    data: Dataset,
    split: str,
    queries: Mapping[str, Tensor],
    labels: Mapping[str, LabelSide],
    weights: Mapping[str, float],
) -> Report:
    """Search all labels for the rows of a split with these weights, and measure."""
    vectors, bias = fold_labels(labels, weights)
    part = data.split(split)
    found = ExactIndex(vectors).search(fold_queries(queries, weights, bias=bias), 100, exclude=part.excluded())
    return measure(data, found.ids, split)


def choose_weights(
    data: Dataset, queries: Mapping[str, Tensor], labels: Mapping[str, LabelSide], select: str
) -> dict[str, float]:
    """Return the weights with the best ``select`` metric on validation rows, by a plain grid.

    The first head is balanced against each other head in turn, in steps of a tenth; equal
    weights win a tie.
    """
    names = list(queries)
    best = {name: 1.0 / len(names) for name in names}
    best_value = rank(data, "val", queries, labels, best).metrics[select]
    for other in names[1:]:
        total = best[names[0]] + best[other]
        for share in np.linspace(0, 1, STEPS + 1):
            tried = {**best, names[0]: float(total * share), other: float(total * (1 - share))}
            used = {name: weight for name, weight in tried.items() if weight > 0}
            value = rank(data, "val", queries, labels, used).metrics[select]
            if value > best_value:
                best, best_value = tried, value
    return best
