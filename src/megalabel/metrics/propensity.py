"""Weight hits by how likely annotators were to notice the label: rare labels count more.

Propensities follow Jain, Prabhu and Varma, "Extreme Multi-label Loss Functions for Recommendation,
Tagging, Ranking & Other Missing Label Applications", KDD 2016. Their two constants A and B differ
between data sets, and between papers on the same set, so figures compare only where A and B agree.
"""

from __future__ import annotations

from math import log
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from megalabel.errors import DataError, SettingError
from megalabel.metrics.ranking import discounted, up_to

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from megalabel.metrics.hits import Hits

__all__ = ["BestOrder", "best_order", "inverse_propensity", "psndcg", "psp"]


def inverse_propensity(
    counts: NDArray[np.integer[Any]], points: int, A: float = 0.55, B: float = 1.5
) -> NDArray[np.float64]:
    """Return the weight of every label: 1 + C (n_l + B)^-A with C = (ln N - 1) (B + 1)^A.

    A label seen once weighs ln N, a label seen always little more than 1. With fewer than three points
    C would fall below 0; it is then 0, and every label weighs 1.

    Args:
        counts: [L] n_l, the number of points each label is relevant to (not a sum of graded values), in
            the original training matrix, before any augmentation.
        points: N, the rows of that matrix.
        A: exponent, at least 0.
        B: offset, above 0.

    >>> inverse_propensity(np.array([6, 1, 0]), 10).round(6)
    array([1.711852, 2.302585, 2.725134])
    """
    counts = np.asarray(counts, dtype=np.float64)
    if not (np.isfinite([A, B]).all() and A >= 0 and B > 0):
        raise SettingError(f"propensity constants A = {A}, B = {B}", remedy="A must be at least 0 and B above 0")
    if counts.ndim != 1 or not ((counts >= 0) & (counts <= points)).all():
        raise DataError(
            f"label counts must be one number per label from 0 to the {points} training points",
            remedy="count the rows in which each label is relevant, and the rows themselves, in the same matrix",
        )
    scale = max(0.0, log(max(1, points)) - 1.0) * (B + 1.0) ** A
    weights: NDArray[np.float64] = 1.0 + scale * (counts + B) ** -A
    return weights


class BestOrder(NamedTuple):
    """The relevant labels of every query in the order of the best ranking under these weights."""

    rank: NDArray[np.int64]  # [n] place in that ranking, 0 = best
    relevant: NDArray[np.int64]  # [n] number of relevant labels of the query
    weight: NDArray[np.float64]  # [n] weight of the label


def best_order(hits: Hits, inverse: NDArray[np.float64]) -> BestOrder:
    """Sort the relevant labels of each query by descending weight and keep the best ``hits.max_k``."""
    if inverse.shape != (hits.labels,):
        raise DataError(f"{inverse.size} label weights for {hits.labels} labels", remedy="give one weight per label")
    order = np.argsort(-inverse, kind="stable")
    position = np.empty_like(order)
    position[order] = np.arange(len(order))
    rows = np.repeat(np.arange(hits.rows), hits.relevant)
    # Within a row, ascending position is descending weight: sorting one number per cell sorts all rows at once.
    key = np.sort(rows * hits.labels + position[hits.truth.indices])
    weight = inverse[order][key - rows * hits.labels]
    rank = np.arange(len(rows)) - np.asarray(hits.truth.indptr, dtype=np.int64)[rows]
    keep = rank < hits.max_k
    return BestOrder(rank[keep], hits.relevant[rows[keep]], weight[keep])


def psp(
    hits: Hits, inverse: NDArray[np.float64], ks: Sequence[int], *, best: BestOrder | None = None
) -> NDArray[np.float64]:
    """Return PSP@k, a ratio of two totals over all queries (not a mean of ratios).

    PSP@k = [sum_i sum_{j<=k} w(r_i(j)) y_i(j)] / [sum_i sum of the k largest w over P_i]
    with label weights w = ``inverse`` [L]. ``best`` is the result of :func:`best_order`, if already computed.
    """
    best = best_order(hits, inverse) if best is None else best
    top = up_to(best.rank, best.weight, hits.at(ks))
    return _ratio(up_to(hits.rank, inverse[hits.label], hits.at(ks)), top)


def psndcg(
    hits: Hits, inverse: NDArray[np.float64], ks: Sequence[int], *, best: BestOrder | None = None
) -> NDArray[np.float64]:
    """Return PSnDCG@k, the weighted nDCG total over the total of the best ranking.

    The weighted nDCG of query i is [sum_{j<=k} w(r_i(j)) y_i(j) / log2(j+1)] /
    [sum_{j<=min(k,|P_i|)} 1 / log2(j+1)]; the best ranking lists P_i by descending weight.
    """
    best = best_order(hits, inverse) if best is None else best
    top = discounted(best.rank, best.relevant, best.weight, hits.at(ks))
    return _ratio(discounted(hits.rank, hits.relevant[hits.row], inverse[hits.label], hits.at(ks)), top)


def _ratio(part: NDArray[np.float64], total: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.divide(part, total, out=np.zeros_like(part), where=total > 0)
