"""One probability per query and label from the scores of several heads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import log_expit

from megalabel.errors import DataError, SettingError
from megalabel.fusion._rows import (
    best_first,
    cells_of,
    check_candidates,
    known_scores,
    labels_of,
    live_cells,
    logs_of,
    numbers,
)
from megalabel.fusion._weights import features, fit_weights, scale_of
from megalabel.fusion.calibrate import Calibration
from megalabel.types import TopK

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from scipy.sparse import csr_matrix

__all__ = ["Fusion"]


@dataclass(frozen=True)
class Fusion:
    """A small logistic model over the scores that every head gives to every candidate.

    With z_h = (s_h - mean_h) / scale_h for the score of head h, best_h the largest z_h among the
    candidates of the row, and n_l the training points of label l, the log-odds are

        f = sum_h [(weights_h + slopes_h g_l) z_h + margins_h (z_h - best_h)] + frequency g_l + bias
        g_l = log(1 + n_l) - usual

    and p = calibration(f), which keeps the order of f within a row (see
    :class:`~megalabel.fusion.calibrate.Calibration`). Order within a row rests on weights_h + margins_h,
    for a label as frequent as the usual candidate; slopes let heads that know a label by its points count
    more where there are many, and heads that know it by its text where there are few. Margins tell rows
    apart in which a head is sure from rows in which it is not.

    A missing score (NaN or -inf, from a head that keeps short lists) counts as ``floors_h``, the lowest
    score that the head gave to any candidate in the fit.

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
    floors: tuple[float, ...]  # [H] what a missing score counts as
    means: tuple[float, ...]  # [H]
    scales: tuple[float, ...]  # [H], above 0
    weights: tuple[float, ...]  # [H]
    margins: tuple[float, ...]  # [H]
    slopes: tuple[float, ...]  # [H] change of a weight with the logarithm of the label's frequency
    usual: float  # mean of log(1 + n_l) over the candidates
    frequency: float
    bias: float
    calibration: Calibration

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

        Hard are the ``hard`` best candidates of each row, first by the plain sum of z_h, then by a
        first fit. The many easy candidates are left out: there label frequency tells most, and a model
        fitted on them trusts it too much at the top, where the ranking is decided.

        The penalty pulls towards equal weights, no margins, slopes or frequency: l2/2 times the
        squared distance, in units of standard deviations, while the slope of the plain sum is nearly
        free. A few rows therefore give the plain sum, thousands the logistic fit, without a limit
        between the two. The calibration is fitted on all candidates. Relevant labels that no head
        proposed do not count.

        Args:
            scores: head name -> [Q, C] scores of the candidates, higher is better.
            candidates: [Q, C] label ids, each once in its row, padded with -1; see
                :func:`~megalabel.fusion.union.union`.
            targets: [Q, L] relevance in [0, 1].
            counts: [L] training points of each label.
            exclude: [Q, L], its non-zero cells take no part.
            hard: candidates of each row to fit on.
            l2: strength of the penalty; 10 weighs about as much as some rows.

        Raises:
            DataError: input that does not fit together, or no relevant candidate at all.
        """
        _check_settings(scores, hard, l2)
        labels = labels_of(counts)
        candidates = check_candidates(candidates, labels)
        live = live_cells(candidates, exclude, labels)
        truth = cells_of(targets, candidates, labels, "targets")
        if not ((truth >= 0) & (truth <= 1)).all():
            raise DataError("targets must lie in [0, 1]")
        if not truth[live].any():
            raise DataError(
                "no candidate of any row is relevant, there is nothing to fit on",
                remedy="give more validation rows, or more candidates",
            )
        floors, means, scales, columns = [], [], [], []
        for name, given in scores.items():
            values, known = known_scores(given, live, name)
            floors.append(float(values[known].min()) if known.any() else 0.0)
            values = np.where(known, values, floors[-1])
            means.append(float(values[live].mean()))
            scales.append(scale_of(values[live]))
            columns += features(values, live, means[-1], scales[-1])
        frequency = logs_of(counts, candidates, "label counts", plus=1.0)
        usual, spread = float(frequency[live].mean()), scale_of(frequency[live])
        rare = (frequency - usual) / spread
        heads = len(scores)
        columns += [*(column * rare for column in columns[::2]), rare]
        found = fit_weights(columns, heads, candidates, live, truth, hard, l2)
        fusion = cls(
            tuple(scores),
            tuple(floors),
            tuple(means),
            tuple(scales),
            tuple(found[: 2 * heads : 2].tolist()),
            tuple(found[1 : 2 * heads : 2].tolist()),
            tuple((found[2 * heads : 3 * heads] / spread).tolist()),
            usual,
            float(found[-2] / spread),
            float(found[-1]),
            Calibration(1.0, 0.0),
        )
        logits = fusion._logits(scores, candidates, counts, live)
        return replace(fusion, calibration=Calibration.fit(logits, truth))

    def probabilities(
        self,
        scores: Mapping[str, NDArray[np.floating[Any]]],
        candidates: NDArray[np.integer[Any]],
        counts: NDArray[np.integer[Any]],
        *,
        exclude: csr_matrix | None = None,
    ) -> NDArray[np.float64]:
        """Return p [Q, C] of the candidates; 0 for padding and for cells of ``exclude``."""
        return np.exp(self._log_probabilities(scores, candidates, counts, exclude))

    def rank(
        self,
        scores: Mapping[str, NDArray[np.floating[Any]]],
        candidates: NDArray[np.integer[Any]],
        counts: NDArray[np.integer[Any]],
        k: int,
        *,
        exclude: csr_matrix | None = None,
        inverse_propensity: NDArray[np.floating[Any]] | None = None,
        tail: float = 0.0,
    ) -> TopK:
        """Return the k candidates of each query with the largest p x inverse_propensity^tail.

        With ``tail`` 0 that is p, best for P@k; 0.15 to 0.5 gives up a little of it for PSP@k, and 1
        is what maximises PSP@k where p is exact. Equal values go to the lower label id; rows with fewer
        than k candidates end in id -1, score -inf.

        Args:
            scores: head name -> [Q, C] scores, of the heads the model was fitted with.
            candidates: [Q, C] label ids, padded with -1.
            counts: [L] training points of each label.
            k: labels per query.
            exclude: [Q, L], its non-zero cells are left out.
            inverse_propensity: [L] label weights; see
                :func:`~megalabel.metrics.propensity.inverse_propensity`.
            tail: exponent of those weights, at least 0.

        Returns:
            ids [Q, k] and the values they are ranked by.
        """
        if k < 1:
            raise SettingError(f"k must be at least 1, not {k}")
        if not (np.isfinite(tail) and tail >= 0):
            raise SettingError(f"tail must be at least 0, not {tail}")
        value = self._log_probabilities(scores, candidates, counts, exclude)
        ids = np.asarray(candidates, dtype=np.int64)
        if tail:
            value = value + tail * logs_of(_weights(inverse_propensity, counts), ids, "label weights", plus=0.0)
        order = best_first(value, ids, k)
        value = np.take_along_axis(value, order, axis=1)
        top = TopK(np.full((len(ids), k), -1, dtype=np.int64), np.full((len(ids), k), -np.inf, dtype=np.float32))
        kept = np.isfinite(value)
        top.ids[:, : order.shape[1]] = np.where(kept, np.take_along_axis(ids, order, axis=1), -1)
        top.scores[:, : order.shape[1]] = np.where(kept, np.exp(value), -np.inf)
        return top

    def contributions(
        self,
        scores: Mapping[str, NDArray[np.floating[Any]]],
        candidates: NDArray[np.integer[Any]],
        counts: NDArray[np.integer[Any]],
    ) -> tuple[dict[str, NDArray[np.float64]], NDArray[np.float64]]:
        """Return what each head adds to f [Q, C], and what is left: frequency g_l + bias.

        Their sum is f; the order of labels in a row is that of f.
        """
        ids = check_candidates(candidates, labels_of(counts))
        frequent = logs_of(counts, ids, "label counts", plus=1.0) - self.usual
        return dict(self._terms(scores, ids >= 0, frequent)), self.bias + self.frequency * frequent

    def shares(self) -> dict[str, float]:
        """Return how much each head counts within a row, in shares of the sum of sizes.

        That is weights_h + margins_h, of a label of the usual frequency.
        """
        sums = {name: w + m for name, w, m in zip(self.names, self.weights, self.margins, strict=True)}
        total = sum(map(abs, sums.values()))
        return {name: value / total if total else 0.0 for name, value in sums.items()}

    def to_dict(self) -> dict[str, Any]:
        """Return plain lists and numbers, ready for JSON."""
        found = {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}
        return {**found, "calibration": self.calibration.to_dict()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Fusion:
        """Read what :meth:`to_dict` gave; anything else is a DataError."""
        keys = [field.name for field in fields(cls)]
        if not isinstance(values, Mapping) or set(values) != set(keys):
            raise DataError(f"a fusion must hold {', '.join(keys)}")
        names = values["names"]
        if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
            raise DataError(f"names must be a list of head names, not {names!r}")
        if not names or len(set(names)) < len(names):
            raise DataError("a fusion needs at least one head, and a name of its own for each")
        floors, means, scales, weights, margins, slopes = (
            numbers(values[key], key, len(names))
            for key in ("floors", "means", "scales", "weights", "margins", "slopes")
        )
        if min(scales) <= 0:
            raise DataError("scales must be above 0")
        (usual,), (frequency,), (bias,) = (numbers([values[key]], key, 1) for key in ("usual", "frequency", "bias"))
        calibration = Calibration.from_dict(values["calibration"])
        return cls(tuple(names), floors, means, scales, weights, margins, slopes, usual, frequency, bias, calibration)

    def _log_probabilities(
        self,
        scores: Mapping[str, NDArray[np.floating[Any]]],
        candidates: NDArray[np.integer[Any]],
        counts: NDArray[np.integer[Any]],
        exclude: csr_matrix | None,
    ) -> NDArray[np.float64]:
        """Return log p [Q, C], -inf where there is no candidate."""
        if set(scores) != set(self.names):
            raise DataError(
                f"scores of the heads {', '.join(scores) or 'none'}, this model fuses {', '.join(self.names)}",
                remedy="give exactly those",
            )
        labels = labels_of(counts)
        candidates = check_candidates(candidates, labels)
        logits = self._logits(scores, candidates, counts, live_cells(candidates, exclude, labels))
        found: NDArray[np.float64] = log_expit(self.calibration.log_odds(logits))
        return found

    def _logits(
        self,
        scores: Mapping[str, NDArray[np.floating[Any]]],
        candidates: NDArray[np.int64],
        counts: NDArray[np.integer[Any]],
        live: NDArray[np.bool_],
    ) -> NDArray[np.float64]:
        """Return f [Q, C], -inf where there is no candidate."""
        frequent = logs_of(counts, candidates, "label counts", plus=1.0) - self.usual
        total = self.bias + self.frequency * frequent
        for _, part in self._terms(scores, live, frequent):
            total += part
        return np.where(live, total, -np.inf)

    def _terms(
        self, scores: Mapping[str, NDArray[np.floating[Any]]], live: NDArray[np.bool_], frequent: NDArray[np.float64]
    ) -> Iterator[tuple[str, NDArray[np.float64]]]:
        """Yield what each head adds to f [Q, C]."""
        heads = zip(
            self.names, self.floors, self.means, self.scales, self.weights, self.margins, self.slopes, strict=True
        )
        for name, floor, mean, scale, weight, margin, slope in heads:
            given, known = known_scores(scores[name], live, name)
            value, away = features(np.where(known, given, floor), live, mean, scale)
            yield name, (weight + slope * frequent) * value + margin * away


def _check_settings(scores: Mapping[str, object], hard: int, l2: float) -> None:
    if not scores:
        raise DataError("there is no head to fuse", remedy="give the scores of at least one")
    if hard < 1:
        raise SettingError(f"hard must be at least 1, not {hard}")
    if not (np.isfinite(l2) and l2 > 0):
        raise SettingError(f"l2 must be above 0, not {l2}", remedy="10 is the usual choice")


def _weights(weights: NDArray[np.floating[Any]] | None, counts: NDArray[np.integer[Any]]) -> NDArray[Any]:
    """Return the label weights, or say that there are none or not as many as labels."""
    if weights is None:
        raise SettingError("tail above 0 without label weights", remedy="pass inverse_propensity")
    if np.shape(weights) != np.shape(counts):
        raise DataError(f"label weights {list(np.shape(weights))} for {len(counts)} labels")
    return np.asarray(weights)
