"""Fusion: one probability per query and label from the scores of several heads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from megalabel.errors import DataError, SettingError
from megalabel.fusion.calibrate import Calibration
from megalabel.fusion.candidates import (
    best_first,
    check_candidates,
    check_scores,
    finite_numbers,
    label_count,
    log_values,
    present_scores,
)
from megalabel.fusion.fused import FusedScores, cells_to_fit, read_names
from megalabel.fusion.logistic import fit_logistic

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from scipy.sparse import csr_matrix

__all__ = ["Fusion"]

_ROUNDS = 2  # fit on the hard candidates of the plain sum, then on those of the first fit
_MIN_SPREAD = 1e-6  # a head whose standardised scores spread less is constant


@dataclass(frozen=True)
class Fusion(FusedScores):
    """A small logistic model over the scores of every head for every candidate.

    With z_h = (s_h - mean_h) / scale_h for the score of head h, best_h the largest z_h among the
    candidates of the row, and n_l the training points of label l, the log-odds are

        f = sum_h [(weights_h + slopes_h g_l) z_h + margins_h (z_h - best_h)] + frequency g_l + bias
        g_l = log(1 + n_l) - usual

    and p = calibration(f), which keeps the order of f within a row (see
    :class:`~megalabel.fusion.calibrate.Calibration`). For a label of usual frequency, the order within a
    row depends on weights_h + margins_h. Slopes give more weight to heads that learn a label from its
    points where there are many points, and to heads that read its text where there are few. Margins
    separate rows in which a head is confident from rows in which it is not.

    A missing score (NaN or -inf, from a head that keeps short lists) is replaced by ``floors_h``, the
    lowest score of that head in the fit.

    >>> from scipy.sparse import csr_matrix
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.random((200, 5)) < 0.3
    >>> scores = {"text": truth + rng.normal(size=(200, 5)), "memory": 2.0 * truth + rng.normal(size=(200, 5))}
    >>> candidates, counts = np.tile(np.arange(5), (200, 1)), np.ones(5, dtype=np.int64)
    >>> fusion = Fusion.fit(scores, candidates, csr_matrix(truth, dtype=np.float32), counts)
    >>> fusion.weights[1] > fusion.weights[0]
    True
    >>> fusion.rank(scores, candidates, counts, k=2).ids.shape
    (200, 2)
    """

    names: tuple[str, ...]  # [H] the heads
    floors: tuple[float, ...]  # [H] replaces a missing score
    means: tuple[float, ...]  # [H]
    scales: tuple[float, ...]  # [H], above 0
    weights: tuple[float, ...]  # [H]
    margins: tuple[float, ...]  # [H]
    slopes: tuple[float, ...]  # [H] change of a weight with the log frequency of the label
    usual: float  # mean of log(1 + n_l) over the candidates
    frequency: float
    bias: float
    calibration: Calibration | None

    rest: ClassVar[str] = "frequency"

    @classmethod
    def fit(
        cls,
        scores: Mapping[str, NDArray[np.floating[Any]]],
        candidates: NDArray[np.integer[Any]],
        targets: csr_matrix,
        counts: NDArray[np.integer[Any]],
        *,
        exclude: csr_matrix | None = None,
        hard: int = 10,
        l2: float = 10.0,
    ) -> Fusion:
        """Fit on validation rows, by penalised logistic regression over their hard candidates.

        The hard candidates are the ``hard`` best of each row, first by the plain sum of z_h, then by a
        first fit. The many easy candidates are left out: among them label frequency is the strongest
        feature, and a model fitted on them relies on it too much at the top of the ranking.

        The penalty pulls towards equal weights and towards zero margins, slopes and frequency: l2/2 times
        the squared distance, in units of standard deviations. The slope of the plain sum is nearly free.
        So a few rows give the plain sum and thousands give the logistic fit, with a smooth transition.
        The calibration is fitted on all candidates. Relevant labels that no head proposed are ignored.

        Args:
            scores: head name -> [Q, C] scores of the candidates, higher is better.
            candidates: [Q, C] label ids, distinct within a row, padded with -1; see
                :func:`~megalabel.fusion.candidates.union`.
            targets: [Q, L] relevance in [0, 1].
            counts: [L] training points of each label.
            exclude: [Q, L], non-zero cells are ignored.
            hard: number of candidates of each row to fit on.
            l2: strength of the penalty; 10 is worth about as much as a few rows.

        Raises:
            DataError: if shapes do not match, or no candidate is relevant.
        """
        _check_settings(scores, hard, l2)
        candidates, live, truth = cells_to_fit(candidates, targets, counts, exclude)
        floors, means, scales, features = [], [], [], []
        for name, head_scores in scores.items():
            values, present = present_scores(head_scores, live, name)
            floors.append(float(values[present].min()) if present.any() else 0.0)
            values = np.where(present, values, floors[-1])
            means.append(float(values[live].mean()))
            scales.append(_scale(values[live]))
            features += _score_and_margin(values, live, means[-1], scales[-1])
        log_counts = log_values(counts, candidates, "label counts", plus=1.0)
        usual, spread = float(log_counts[live].mean()), _scale(log_counts[live])
        frequency = (log_counts - usual) / spread
        heads = len(scores)
        features += [*(feature * frequency for feature in features[::2]), frequency]
        weights = _fit_weights(features, heads, candidates, live, truth, hard, l2)
        fusion = cls(
            tuple(scores),
            tuple(floors),
            tuple(means),
            tuple(scales),
            tuple(weights[: 2 * heads : 2].tolist()),
            tuple(weights[1 : 2 * heads : 2].tolist()),
            tuple((weights[2 * heads : 3 * heads] / spread).tolist()),
            usual,
            float(weights[-2] / spread),
            float(weights[-1]),
            Calibration(1.0, 0.0),
        )
        logits = fusion._logits(scores, candidates, counts, live)
        return replace(fusion, calibration=Calibration.fit(logits, truth))

    @classmethod
    def plain(
        cls,
        scores: Mapping[str, NDArray[np.floating[Any]]],
        candidates: NDArray[np.integer[Any]],
        counts: NDArray[np.integer[Any]],
    ) -> Fusion:
        """Return the mean of z_h, without calibration, for want of validation rows.

        Args:
            scores: head name -> [Q, C] scores of candidates that are not relevant, best on rows of train: their means
                and scales are much like those of wrong labels of other rows.
            candidates: [Q, C] those candidates, padded with -1.
            counts: [L] training points of each label.
        """
        _check_settings(scores, 1, 1.0)
        candidates = check_candidates(candidates, label_count(counts))
        live = candidates >= 0
        floors, means, scales = [], [], []
        for name, head_scores in scores.items():
            values, present = present_scores(head_scores, live, name)
            floors.append(float(values[present].min()) if present.any() else 0.0)
            values = np.where(present, values, floors[-1])[live]
            means.append(float(values.mean()) if len(values) else 0.0)
            scales.append(_scale(values) if len(values) else 1.0)
        equal, none = (1.0 / len(scores),) * len(scores), (0.0,) * len(scores)
        return cls(tuple(scores), tuple(floors), tuple(means), tuple(scales), equal, none, none, 0.0, 0.0, 0.0, None)

    def contributions(
        self,
        scores: Mapping[str, NDArray[np.floating[Any]]],
        candidates: NDArray[np.integer[Any]],
        counts: NDArray[np.integer[Any]],
    ) -> tuple[dict[str, NDArray[np.float64]], NDArray[np.float64]]:
        """Return the term of each head in f [Q, C], and the remaining term: frequency g_l + bias.

        The terms sum to f, which orders the labels in a row.
        """
        ids = check_candidates(candidates, label_count(counts))
        frequency = log_values(counts, ids, "label counts", plus=1.0) - self.usual
        return dict(self._terms(scores, ids >= 0, frequency)), self.bias + self.frequency * frequency

    def shares(self) -> dict[str, float]:
        """Return the share of each head in the ranking within a row; the absolute values sum to 1.

        A share is ``(weights_h + margins_h) / sum_h |weights_h + margins_h|``, for a label of usual frequency.
        """
        sums = {name: w + m for name, w, m in zip(self.names, self.weights, self.margins, strict=True)}
        total = sum(map(abs, sums.values()))
        return {name: value / total if total else 0.0 for name, value in sums.items()}

    def to_dict(self) -> dict[str, Any]:
        """Return plain lists and numbers, ready for JSON."""
        values = {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}
        return {**values, "calibration": None if self.calibration is None else self.calibration.to_dict()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Fusion:
        """Read the output of :meth:`to_dict`; raise a DataError for anything else."""
        names = read_names(values, cls, least=1)
        floors, means, scales, weights, margins, slopes = (
            finite_numbers(values[key], key, len(names))
            for key in ("floors", "means", "scales", "weights", "margins", "slopes")
        )
        if min(scales) <= 0:
            raise DataError("scales must be above 0")
        (usual,), (frequency,), (bias,) = (
            finite_numbers([values[key]], key, 1) for key in ("usual", "frequency", "bias")
        )
        calibration = Calibration.read(values["calibration"])
        return cls(names, floors, means, scales, weights, margins, slopes, usual, frequency, bias, calibration)

    def _logits(
        self,
        scores: Mapping[str, NDArray[np.floating[Any]]],
        candidates: NDArray[np.int64],
        counts: NDArray[np.integer[Any]],
        live: NDArray[np.bool_],
    ) -> NDArray[np.float64]:
        """Return f [Q, C]; -inf where there is no candidate."""
        from megalabel.fusion._kernels import add_terms

        frequency = log_values(counts, candidates, "label counts", plus=1.0) - self.usual
        total = self.bias + self.frequency * frequency
        heads = zip(self.floors, self.means, self.scales, self.weights, self.margins, self.slopes, strict=True)
        for name, settings in zip(self.names, heads, strict=True):
            values = check_scores(scores[name], live, name)
            if not add_terms(values, live, frequency, np.array(settings), total):
                raise DataError(f"infinite score of {name}")
        return np.where(live, total, -np.inf)

    def _terms(
        self, scores: Mapping[str, NDArray[np.floating[Any]]], live: NDArray[np.bool_], frequency: NDArray[np.float64]
    ) -> Iterator[tuple[str, NDArray[np.float64]]]:
        """Yield the name and the term in f [Q, C] of each head."""
        heads = zip(
            self.names, self.floors, self.means, self.scales, self.weights, self.margins, self.slopes, strict=True
        )
        for name, floor, mean, scale, weight, margin, slope in heads:
            values, present = present_scores(scores[name], live, name)
            standardised, to_best = _score_and_margin(np.where(present, values, floor), live, mean, scale)
            yield name, (weight + slope * frequency) * standardised + margin * to_best


def _check_settings(scores: Mapping[str, object], hard: int, l2: float) -> None:
    if not scores:
        raise DataError("no head to fuse", remedy="pass the scores of at least one head")
    if hard < 1:
        raise SettingError(f"hard must be at least 1, not {hard}")
    if not (np.isfinite(l2) and l2 > 0):
        raise SettingError(f"l2 must be above 0, not {l2}", remedy="the default is 10")


def _fit_weights(
    features: list[NDArray[np.float64]],
    heads: int,
    candidates: NDArray[np.int64],
    live: NDArray[np.bool_],
    truth: NDArray[np.float64],
    hard: int,
    l2: float,
) -> NDArray[np.float64]:
    """Return the weights of F features [Q, C], and a bias: [F + 1].

    The features are score and margin of each head in turn, then any others. One more feature, the plain
    sum of the scores, carries what all heads share and is nearly free of penalty; the penalty applies to
    what each weight adds to it.
    """
    count = len(features)
    shared = np.zeros(count)
    scores = slice(0, 2 * heads, 2)
    shared[scores] = [feature[live].std() > _MIN_SPREAD for feature in features[scores]]  # constant heads share nothing
    plain_sum = _weighted_sum(features, shared)
    penalty = np.r_[np.full(count, l2), 1.0, 1e-3]
    centre = np.r_[np.zeros(count), 1.0 / max(1.0, shared.sum()), 0.0]
    logits = plain_sum
    for _ in range(_ROUNDS):
        columns = best_first(np.where(live, logits, -np.inf), candidates, hard)
        cells = np.zeros_like(live)
        np.put_along_axis(cells, columns, True, axis=1)
        cells &= live
        inputs = np.stack([*(feature[cells] for feature in features), plain_sum[cells], np.ones(cells.sum())], axis=1)
        fitted = fit_logistic(inputs, truth[cells], penalty, centre)
        weights: NDArray[np.float64] = fitted[:count] + fitted[count] * shared
        logits = _weighted_sum(features, weights)
    return np.append(weights, fitted[-1])


def _weighted_sum(features: list[NDArray[np.float64]], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return sum_f weights_f features_f [Q, C]."""
    total = np.zeros_like(features[0])
    for feature, weight in zip(features, weights.tolist(), strict=True):
        total += weight * feature
    return total


def _score_and_margin(
    values: NDArray[np.float64], live: NDArray[np.bool_], mean: float, scale: float
) -> list[NDArray[np.float64]]:
    """Return z = (values - mean) / scale [Q, C] and z minus the best z of its row; both 0 outside live cells."""
    scores = np.where(live, (values - mean) / scale, -np.inf)
    best = scores.max(axis=1, keepdims=True, initial=-np.inf)
    margins = np.subtract(scores, best, out=np.zeros_like(scores), where=live)
    return [np.where(live, scores, 0.0), margins]


def _scale(values: NDArray[np.float64]) -> float:
    """Return the standard deviation, or 1 if it is within rounding error of 0."""
    spread = float(values.std())
    return spread if spread > 1e-9 * float(np.abs(values).max(initial=0.0)) else 1.0
