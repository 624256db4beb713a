"""The loops of a fusion, compiled by numba, which this file loads."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from megalabel.compiled import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["add_terms", "calibrated"]


@compiled
def add_terms(
    scores: NDArray[np.float32],
    live: NDArray[np.bool_],
    frequency: NDArray[np.float64],
    settings: NDArray[np.float64],
    total: NDArray[np.float64],
) -> bool:
    """Add the term of one head to ``total`` [Q, C], as :class:`~megalabel.fusion.Fusion` defines it.

    ``settings`` are floor, mean, scale, weight, margin and slope. Returns False for an infinite score.
    """
    floor, mean, scale, weight, margin, slope = settings
    finite = True
    for query in range(len(scores)):
        best = -np.inf
        for place in range(scores.shape[1]):
            if live[query, place]:
                score = np.float64(scores[query, place])
                finite &= score != np.inf
                best = max(best, ((floor if math.isnan(score) or score == -np.inf else score) - mean) / scale)
        for place in range(scores.shape[1]):
            if live[query, place]:
                score = np.float64(scores[query, place])
                own = ((floor if math.isnan(score) or score == -np.inf else score) - mean) / scale
                total[query, place] += (weight + slope * frequency[query, place]) * own + margin * (own - best)
    return finite


@compiled
def calibrated(
    scores: NDArray[np.float64], order: NDArray[np.int64], settings: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return logit p [Q, C] as :class:`~megalabel.fusion.Calibration` defines it; -inf where there is no candidate.

    ``order`` [Q, C] sorts each row, best first; ``settings`` are slope, shift, line, bend, place and bias.
    """
    slope, shift, line, bend, decay, bias = settings
    out = np.full(scores.shape, -np.inf)
    for query in range(len(scores)):
        higher, before = 0, np.inf  # candidates with a higher score; ties share a rank
        for place in range(scores.shape[1]):
            cell = order[query, place]
            score = scores[query, cell]
            if not score > -np.inf:
                break
            if score != before:
                higher, before = place, score
            logit = slope * score + shift
            log_sigmoid = -math.log1p(math.exp(-logit)) if logit >= 0 else logit - math.log1p(math.exp(logit))
            out[query, cell] = line * logit + bend * log_sigmoid - decay * math.log1p(higher) + bias
    return out
