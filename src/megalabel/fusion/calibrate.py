"""Calibrated probabilities from scores, in the same order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import expit, log_expit

from megalabel.errors import DataError, SettingError
from megalabel.fusion.candidates import finite_numbers
from megalabel.fusion.logistic import fit_logistic

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Calibration", "expected_calibration_error"]

_HARD = 10  # best candidates of each row that the log-odds are fitted on
_PRIOR = 1.0  # strength of the prior towards plain log-odds
_MIN_SLOPE = 1e-6  # smallest slope, so the order is never lost


@dataclass(frozen=True)
class Calibration:
    """Maps the scores of a row of candidates to probabilities without changing their order.

    Log-odds x = slope s + shift are fitted on the ten best candidates of each row, by logistic
    regression (Platt, "Probabilistic outputs for support vector machines", 1999). One straight
    line does not fit from the best candidate to the hundredth, and the best candidate of a weak
    row is right more often than an equal score far down a strong row. So, fitted on all candidates,

        logit p = line x + bend log sigmoid(x) - place log(1 + r) + bias

    where r is the number of candidates in the row with a higher score. ``line``, ``bend`` and
    ``place`` are not negative, so p increases with s within a row. ``bend`` is the second
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
        """Fit on the candidates of rows that no head was trained on.

        Args:
            scores: [Q, C], higher is better; NaN and -inf mark cells without a candidate, as at the
                end of a short :class:`~megalabel.types.TopK`. Each row must hold its best candidates.
            targets: [Q, C] relevance in [0, 1] of the same cells.

        Raises:
            DataError: if shapes differ, a target is outside [0, 1], or no candidate is relevant.
        """
        scores, live = _live(scores)
        truth = np.asarray(targets, dtype=np.float64)
        if truth.shape != scores.shape:
            raise DataError(f"targets {list(truth.shape)} for scores {list(scores.shape)}")
        if not ((truth >= 0) & (truth <= 1))[live].all():
            raise DataError("targets must lie in [0, 1]")
        if not truth[live].any():
            raise DataError("nothing to fit on: no candidate is relevant", remedy="pass more rows")
        ranks = _ranks(scores)
        slope, shift = _platt(scores, live & (ranks < _HARD), truth)
        features = _features(slope * scores[live] + shift, ranks[live])
        kept = [0, 1, 2]
        while True:  # drop a feature whose weight would reverse the order
            prior = np.array([*(float(i == 0) for i in kept), 0.0])
            penalty = np.full(len(prior), _PRIOR)
            fitted = fit_logistic(features[:, [*kept, 3]], truth[live], penalty, prior)
            if (fitted[:-1] >= 0).all():
                break
            kept.pop(int(fitted[:-1].argmin()))
        weights = dict(zip(kept, fitted[:-1].tolist(), strict=True))
        return cls(
            slope,
            shift,
            max(_MIN_SLOPE, weights.get(0, 0.0)),
            weights.get(1, 0.0),
            weights.get(2, 0.0),
            float(fitted[-1]),
        )

    def log_odds(self, scores: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
        """Return logit p [Q, C]; -inf where there is no candidate."""
        from megalabel.fusion._kernels import calibrated

        scores, _ = _live(scores)
        settings = np.array([self.slope, self.shift, self.line, self.bend, self.place, self.bias])
        return calibrated(scores, np.argsort(-scores, axis=1, kind="stable"), settings)

    def probabilities(self, scores: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
        """Return p [Q, C]; 0 where there is no candidate."""
        probabilities: NDArray[np.float64] = expit(self.log_odds(scores))
        return probabilities

    def to_dict(self) -> dict[str, float]:
        """Return plain numbers, ready for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Calibration:
        """Read the output of :meth:`to_dict`; raise a DataError for anything else."""
        names = [field.name for field in fields(cls)]
        if not isinstance(values, Mapping) or set(values) != set(names):
            raise DataError(f"a calibration must have {', '.join(names)}")
        calibration = cls(*(finite_numbers([values[name]], name, 1)[0] for name in names))
        if calibration.slope <= 0 or calibration.line <= 0 or calibration.bend < 0 or calibration.place < 0:
            raise DataError("bend and place of a calibration must be at least 0, slope and line above 0")
        return calibration

    @classmethod
    def read(cls, values: Mapping[str, Any] | None) -> Calibration | None:
        """Read the output of :meth:`to_dict`, or None, for scores that are not calibrated."""
        return None if values is None else cls.from_dict(values)


def expected_calibration_error(
    probabilities: NDArray[np.floating[Any]], targets: NDArray[np.floating[Any]], *, bins: int = 15
) -> float:
    """Return the mean gap between confidence and accuracy: ``sum_b n_b / n |mean p - mean y|``.

    Cells are grouped by probability into ``bins`` bins of equal width over [0, 1] (Guo et al., "On
    Calibration of Modern Neural Networks", ICML 2017, Eq. 3).

    Args:
        probabilities: any shape, in [0, 1]. Pass the cells that users see, such as the first 5 of
            each row: over all candidates, the many that are clearly wrong hide the error.
        targets: relevance of the same cells in [0, 1].
        bins: number of bins.

    >>> expected_calibration_error(np.array([0.9, 0.9, 0.1]), np.array([1.0, 0.0, 0.0])).__round__(4)
    0.3
    """
    predicted, truth = (np.asarray(values, dtype=np.float64).ravel() for values in (probabilities, targets))
    if len(predicted) != len(truth) or len(predicted) == 0:
        raise DataError(f"{len(predicted)} probabilities for {len(truth)} targets")
    if not all(((values >= 0) & (values <= 1)).all() for values in (predicted, truth)):
        raise DataError("probabilities and targets must lie in [0, 1]")
    if bins < 1:
        raise SettingError(f"bins must be at least 1, not {bins}")
    bin_ids = np.minimum((predicted * bins).astype(np.int64), bins - 1)
    return float(np.abs(np.bincount(bin_ids, predicted - truth, minlength=bins)).sum() / len(predicted))


def _live(scores: NDArray[np.floating[Any]]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return scores as float64, -inf in cells without a candidate, and the mask of cells with one."""
    values = np.asarray(scores, dtype=np.float64)
    if values.ndim != 2:
        raise DataError(f"scores must be [queries, candidates], not {list(values.shape)}")
    if (values == np.inf).any():
        raise DataError("infinite score")
    live = ~np.isnan(values) & (values != -np.inf)
    return np.where(live, values, -np.inf), live


def _ranks(scores: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return for each cell the number of cells in its row with a higher score; ties share a rank."""
    order = np.argsort(-scores, axis=1, kind="stable")
    ranked = np.take_along_axis(scores, order, axis=1)
    starts = np.ones(scores.shape, dtype=bool)
    starts[:, 1:] = ranked[:, 1:] != ranked[:, :-1]
    first = np.maximum.accumulate(np.where(starts, np.arange(scores.shape[1]), 0), axis=1)
    ranks = np.empty_like(order)
    np.put_along_axis(ranks, order, first, axis=1)
    return ranks


def _platt(scores: NDArray[np.float64], hard: NDArray[np.bool_], targets: NDArray[np.float64]) -> tuple[float, float]:
    """Return slope and shift of the log-odds of the hard cells."""
    values = scores[hard]
    mean, scale = float(values.mean()), float(values.std()) or 1.0
    features = np.stack([(values - mean) / scale, np.ones_like(values)], axis=1)
    slope, shift = fit_logistic(features, targets[hard], np.full(2, _PRIOR), np.array([1.0, 0.0])).tolist()
    slope = max(slope, _MIN_SLOPE) / scale
    return slope, shift - slope * mean


def _features(logits: NDArray[np.float64], ranks: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the features that logit p is a weighted sum of, stacked along a last axis of 4."""
    return np.stack([logits, log_expit(logits), -np.log1p(ranks), np.ones_like(logits)], axis=-1)
