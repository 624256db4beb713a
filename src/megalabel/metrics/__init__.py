"""Metrics of extreme classification over (ids, csr): precision, propensity scores, coverage, frequency bins.

:func:`evaluate` measures everything at once. The single functions take the result of :func:`find_hits`
and a list of cut-offs, and return fractions. Needs numpy and scipy only.
"""

from megalabel.metrics.bins import Bin, equal_volume_bins, head_torso_tail
from megalabel.metrics.coverage import Macro, coverage, macro
from megalabel.metrics.evaluate import evaluate
from megalabel.metrics.filtering import drop_filtered
from megalabel.metrics.hits import Hits, find_hits
from megalabel.metrics.label_sets import SetCurve, SetFigures, set_curve
from megalabel.metrics.measure import measure
from megalabel.metrics.propensity import inverse_propensity, psndcg, psp
from megalabel.metrics.ranking import hit_rate, mrr, ndcg, precision, r_precision, recall
from megalabel.metrics.report import Report
from megalabel.metrics.thresholds import GOALS, SetReport, Threshold, Thresholds

__all__ = [
    "GOALS",
    "Bin",
    "Hits",
    "Macro",
    "Report",
    "SetCurve",
    "SetFigures",
    "SetReport",
    "Threshold",
    "Thresholds",
    "coverage",
    "drop_filtered",
    "equal_volume_bins",
    "evaluate",
    "find_hits",
    "head_torso_tail",
    "hit_rate",
    "inverse_propensity",
    "macro",
    "measure",
    "mrr",
    "ndcg",
    "precision",
    "psndcg",
    "psp",
    "r_precision",
    "recall",
    "set_curve",
]
