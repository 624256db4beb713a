"""Measure rankings against the truth with every metric at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from megalabel.errors import DataError, SettingError
from megalabel.metrics.annif import annif_metrics
from megalabel.metrics.bins import equal_volume_bins, head_torso_tail
from megalabel.metrics.coverage import coverage, macro
from megalabel.metrics.filtering import drop_filtered
from megalabel.metrics.hits import Hits, as_ids, find_hits
from megalabel.metrics.propensity import best_order, psndcg, psp
from megalabel.metrics.propensity import inverse_propensity as weights_of
from megalabel.metrics.ranking import hit_rate, mrr, ndcg, precision, r_precision, recall
from megalabel.metrics.report import Report

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from scipy.sparse import csr_matrix

__all__ = ["METRICS", "evaluate"]

_ALWAYS = (1, 3, 5)
_KS = (1, 3, 5, 10, 50, 100)
_NAMES = ("P", "nDCG", "PSP", "PSnDCG", "R", "RP", "MRR", "hits", "coverage", "macroP", "macroR", "macroF1")
METRICS = tuple(f"{name}@{k}" for name in _NAMES for k in _KS)  # of rankings of 100 labels, with propensities


def evaluate(
    ids: NDArray[np.integer[Any]],
    truth: csr_matrix,
    *,
    counts: NDArray[np.integer[Any]] | None = None,
    points: int | None = None,
    A: float = 0.55,
    B: float = 1.5,
    inverse_propensity: NDArray[np.float64] | None = None,
    filter: NDArray[np.integer[Any]] | None = None,
    ks: Sequence[int] = _KS,
    bins: int = 5,
    annif: bool = False,
) -> Report:
    """Measure rankings with all metrics: P, R, nDCG, MRR, hits, RP, PSP, PSnDCG, coverage and macro P, R, F1.

    Args:
        ids: [N, K] label ids, best first; a short ranking ends in -1.
        truth: [N, L] sparse relevance; every value above 0 counts the same.
        counts: [L] training points of each label, for propensities and frequency bins.
        points: training rows; needed with ``counts`` unless the weights are given.
        A: propensity exponent; see :func:`~megalabel.data.propensity_constants.propensity_constants`.
        B: propensity offset.
        inverse_propensity: [L] label weights, instead of those computed from counts, points, A and B.
        filter: [n, 2] (row, label) pairs removed from the rankings before any cut to k.
        ks: cut-offs. Those beyond the width K are left out, except 1, 3 and 5: missing labels
            are misses, and P@k still divides by k.
        bins: number of frequency bins of equal training volume.
        annif: also measure what ``annif eval`` prints of documents.

    Returns:
        A report in percent. Without counts and weights it has no PSP, PSnDCG; without counts no bins.

    Raises:
        DataError: nothing to measure, or rankings and truth do not match.
        SettingError: invalid cut-offs or constants.

    >>> from scipy.sparse import csr_matrix
    >>> truth = csr_matrix([[1, 0, 1, 0], [0, 1, 0, 0]])
    >>> report = evaluate(np.array([[0, 1, 2], [3, 1, 0]]), truth, counts=np.array([6, 3, 1, 1]), points=10, ks=[1, 3])
    >>> {name: round(value, 2) for name, value in report.metrics.items() if name.startswith("P")}
    {'P@1': 50.0, 'P@3': 50.0, 'PSP@1': 40.32, 'PSP@3': 100.0, 'PSnDCG@1': 40.32, 'PSnDCG@3': 74.22}
    """
    ids = as_ids(ids)
    if filter is not None:
        ids = drop_filtered(ids, filter, labels=truth.shape[1])
    cuts = _cuts(ks, ids.shape[1])
    hits = find_hits(ids, truth, cuts[-1])
    if not hits.relevant.any():
        raise DataError(
            f"nothing to measure: {hits.rows} rows, none with a relevant label", remedy="give rows with labels"
        )
    weights, constants = _weights(counts, points, A, B, inverse_propensity)
    figures = _measure(hits, weights, cuts)
    near = [k for k in cuts if k in _ALWAYS] or cuts[:1]
    return Report(
        metrics={f"{n}@{k}": 100.0 * float(v) for n, vs in figures.items() for k, v in zip(cuts, vs, strict=True)},
        rows=hits.rows,
        labels=hits.labels,
        propensity=constants,
        bins=() if counts is None else equal_volume_bins(hits, counts, near, bins=bins),
        groups=() if counts is None else head_torso_tail(hits, counts, near),
        annif=annif_metrics(ids, truth) if annif else None,
    )


def _measure(hits: Hits, weights: NDArray[np.float64] | None, ks: list[int]) -> dict[str, NDArray[np.float64]]:
    figures = {"P": precision(hits, ks), "nDCG": ndcg(hits, ks)}
    if weights is not None:
        best = best_order(hits, weights)
        figures |= {"PSP": psp(hits, weights, ks, best=best), "PSnDCG": psndcg(hits, weights, ks, best=best)}
    figures |= {"R": recall(hits, ks), "RP": r_precision(hits, ks), "MRR": mrr(hits, ks), "hits": hit_rate(hits, ks)}
    per_label = macro(hits, ks)
    return figures | {
        "coverage": coverage(hits, ks),
        "macroP": per_label.precision,
        "macroR": per_label.recall,
        "macroF1": per_label.f1,
    }


def _weights(
    counts: NDArray[np.integer[Any]] | None,
    points: int | None,
    A: float,
    B: float,
    weights: NDArray[np.float64] | None,
) -> tuple[NDArray[np.float64] | None, dict[str, float | int | None] | None]:
    """Return the label weights and the propensity entry of the report."""
    if weights is not None:
        weights = np.asarray(weights, dtype=np.float64)
        if not (np.isfinite(weights) & (weights > 0)).all():
            raise DataError("label weights must be finite and above 0", remedy="see inverse_propensity")
        return weights, {"A": None, "B": None, "points": None}
    if counts is None:
        return None, None
    if points is None:
        raise SettingError("counts without points", remedy="pass points, the number of training rows")
    return weights_of(counts, points, A, B), {"A": float(A), "B": float(B), "points": int(points)}


def _cuts(ks: Sequence[int], width: int) -> list[int]:
    """Return the cut-offs to measure at, ascending."""
    wrong = [k for k in ks if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or k < 1]
    if wrong:
        raise SettingError(f"cannot measure at k = {wrong[0]}", remedy="choose whole numbers from 1")
    kept = sorted({int(k) for k in ks if k <= width or k in _ALWAYS})
    if not kept:
        raise SettingError(
            f"no cut-off among {list(ks)} fits rankings of {width} labels", remedy=f"choose k from 1 to {max(5, width)}"
        )
    return kept
