"""Probabilities from scores, in the same order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import expit, log_expit

from megalabel.errors import DataError, SettingError
from megalabel.fusion._logistic import fit_logistic
from megalabel.fusion._rows import numbers

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Calibration", "expected_calibration_error"]

_HARD = 10  # places of each row that the log-odds are fitted on
_PRIOR = 1.0  # strength of the pull towards plain log-odds
_LEAST = 1e-6  # slope that is always left, so that order is never lost


@dataclass(frozen=True)
class Calibration:
    """A map from the scores of a row of candidates to probabilities that never changes their order.

    Log-odds x = slope s + shift come from the ten best candidates of each row, by logistic
    regression (Platt, "Probabilistic outputs for support vector machines", 1999). A straight
    line does not hold from the best candidate to the hundredth, and the best of a weak row is
    right more often than an equal score far down a strong one. So, fitted on all candidates,

        logit p = line x + bend log sigmoid(x) - place log(1 + r) + bias

    where r counts the candidates of the row with a higher score. ``line``, ``bend`` and
    ``place`` are not negative, so p rises with s within a row. ``bend`` is the second
    parameter of beta calibration (Kull, Silva Filho and Flach, AISTATS 2017).

    >>> scores = np.tile([3.0, 1.0, 0.0, -np.inf], (100, 1))  # -inf: no candidate
    >>> targets = np.zeros((100, 4))
    >>> targets[:80, 0] = targets[80:, 1] = 1.0
    >>> calibration = Calibration.fit(scores, targets)
    >>> calibration.probabilities(scores[:1]).round(1).tolist()
    [[0.8, 0.2, 0.0, 0.0]]
    """

    slope: float
    shift: float
    line: float = 1.0
    bend: float = 0.0
    place: float = 0.0
    bias: float = 0.0

    @classmethod
    def fit(cls, scores: NDArray[np.floating[Any]], targets: NDArray[np.floating[Any]]) -> Calibration:
        """Fit on candidates of rows that no head was trained on.

        Args:
            scores: [Q, C], higher is better; NaN and -inf are no candidates, as at the end of
                a short :class:`~megalabel.types.TopK`. Each row holds the best candidates there are.
            targets: [Q, C] relevance in [0, 1] of the same cells.

        Raises:
            DataError: shapes that do not fit, targets outside [0, 1], or not one relevant candidate.
        """
        scores, live = _live(scores)
        truth = np.asarray(targets, dtype=np.float64)
        if truth.shape != scores.shape:
            raise DataError(f"targets {list(truth.shape)} for scores {list(scores.shape)}")
        if not ((truth >= 0) & (truth <= 1))[live].all():
            raise DataError("targets must lie in [0, 1]")
        if not truth[live].any():
            raise DataError("no candidate is relevant, there is nothing to fit on", remedy="give more rows")
        places = _places(scores)
        slope, shift = _platt(scores, live & (places < _HARD), truth)
        columns = _columns(slope * scores[live] + shift, places[live])
        kept = [0, 1, 2]
        while True:  # leave out what would turn the order round
            prior = np.array([*(float(i == 0) for i in kept), 0.0])
            penalty = np.full(len(prior), _PRIOR)
            found = fit_logistic(columns[:, [*kept, 3]], truth[live], penalty, prior)
            if (found[:-1] >= 0).all():
                break
            kept.pop(int(found[:-1].argmin()))
        weights = dict(zip(kept, found[:-1].tolist(), strict=True))
        return cls(
            slope, shift, max(_LEAST, weights.get(0, 0.0)), weights.get(1, 0.0), weights.get(2, 0.0), float(found[-1])
        )

    def log_odds(self, scores: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
        """Return logit p [Q, C]; -inf where there is no candidate."""
        scores, live = _live(scores)
        columns = _columns(self.slope * np.where(live, scores, 0.0) + self.shift, _places(scores))
        return np.where(live, columns @ [self.line, self.bend, self.place, self.bias], -np.inf)

    def probabilities(self, scores: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
        """Return p [Q, C]; 0 where there is no candidate."""
        found: NDArray[np.float64] = expit(self.log_odds(scores))
        return found

    def to_dict(self) -> dict[str, float]:
        """Return plain numbers, ready for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Calibration:
        """Read what :meth:`to_dict` gave; anything else is a DataError."""
        names = [field.name for field in fields(cls)]
        if not isinstance(values, Mapping) or set(values) != set(names):
            raise DataError(f"a calibration must hold {', '.join(names)}")
        found = cls(*(numbers([values[name]], name, 1)[0] for name in names))
        if found.slope <= 0 or found.line <= 0 or found.bend < 0 or found.place < 0:
            raise DataError("the weights of a calibration must not be negative, and slope and line above 0")
        return found


def expected_calibration_error(
    probabilities: NDArray[np.floating[Any]], targets: NDArray[np.floating[Any]], *, bins: int = 15
) -> float:
    """Return the mean distance between how sure and how right: sum_b n_b / n |mean p - mean y|.

    Cells fall into ``bins`` bins of equal width over [0, 1] by their probability (Guo et al., "On
    Calibration of Modern Neural Networks", ICML 2017, Eq. 3).

    Args:
        probabilities: any shape, in [0, 1]; choose the cells that are shown to people, the first 5
            of each row, say: over all candidates the many that are surely wrong hide everything.
        targets: relevance of the same cells in [0, 1].
        bins: number of bins.

    >>> expected_calibration_error(np.array([0.9, 0.9, 0.1]), np.array([1.0, 0.0, 0.0])).__round__(4)
    0.3
    """
    chance, truth = (np.asarray(one, dtype=np.float64).ravel() for one in (probabilities, targets))
    if len(chance) != len(truth) or len(chance) == 0:
        raise DataError(f"{len(chance)} probabilities for {len(truth)} targets")
    if not all(((one >= 0) & (one <= 1)).all() for one in (chance, truth)):
        raise DataError("probabilities and targets must lie in [0, 1]")
    if bins < 1:
        raise SettingError(f"bins must be at least 1, not {bins}")
    place = np.minimum((chance * bins).astype(np.int64), bins - 1)
    return float(np.abs(np.bincount(place, chance - truth, minlength=bins)).sum() / len(chance))


def _live(scores: NDArray[np.floating[Any]]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return scores in float64, -inf where there is no candidate, and where there is one."""
    found = np.asarray(scores, dtype=np.float64)
    if found.ndim != 2:
        raise DataError(f"scores must be [queries, candidates], not {list(found.shape)}")
    if (found == np.inf).any():
        raise DataError("a score is infinite")
    live = ~np.isnan(found) & (found != -np.inf)
    return np.where(live, found, -np.inf), live


def _places(scores: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return for each cell how many of its row have a higher score; equal scores share a place."""
    order = np.argsort(-scores, axis=1, kind="stable")
    ranked = np.take_along_axis(scores, order, axis=1)
    starts = np.ones(scores.shape, dtype=bool)
    starts[:, 1:] = ranked[:, 1:] != ranked[:, :-1]
    first = np.maximum.accumulate(np.where(starts, np.arange(scores.shape[1]), 0), axis=1)
    places = np.empty_like(order)
    np.put_along_axis(places, order, first, axis=1)
    return places


def _platt(scores: NDArray[np.float64], hard: NDArray[np.bool_], targets: NDArray[np.float64]) -> tuple[float, float]:
    """Return slope and shift of the log-odds of the hard cells."""
    values = scores[hard]
    mean, scale = float(values.mean()), float(values.std()) or 1.0
    columns = np.stack([(values - mean) / scale, np.ones_like(values)], axis=1)
    slope, shift = fit_logistic(columns, targets[hard], np.full(2, _PRIOR), np.array([1.0, 0.0])).tolist()
    slope = max(slope, _LEAST) / scale
    return slope, shift - slope * mean


def _columns(logits: NDArray[np.float64], places: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return what logit p is a weighted sum of, stacked along a last axis of 4."""
    return np.stack([logits, log_expit(logits), -np.log1p(places), np.ones_like(logits)], axis=-1)
