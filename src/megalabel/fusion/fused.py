"""What every fusion does once it has a score for each candidate: probabilities and a ranking."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from scipy.special import log_expit

from megalabel.errors import DataError, SettingError
from megalabel.fusion.candidates import (
    best_first,
    check_candidates,
    label_count,
    live_cells,
    log_values,
    values_at,
)
from megalabel.types import TopK

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from scipy.sparse import csr_matrix

    from megalabel.fusion.calibrate import Calibration

__all__ = ["FusedScores", "cells_to_fit", "read_names"]


class FusedScores(ABC):
    """One score per query and candidate from the scores of several heads, and its probability."""

    rest: ClassVar[str]  # what adds to the score beside the heads
    names: tuple[str, ...]  # [H] the heads
    calibration: Calibration | None  # None: fitted on too few rows to tell how often a score is right

    @abstractmethod
    def contributions(
        self,
        scores: Mapping[str, NDArray[np.floating[Any]]],
        candidates: NDArray[np.integer[Any]],
        counts: NDArray[np.integer[Any]],
    ) -> tuple[dict[str, NDArray[np.float64]], NDArray[np.float64]]:
        """Return the term of each head in the score [Q, C], and the remaining term; they sum to the score."""

    @abstractmethod
    def shares(self) -> dict[str, float]:
        """Return the share of each head in the ranking within a row; the absolute values sum to 1."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return plain lists and numbers, ready for JSON."""

    @abstractmethod
    def _logits(
        self,
        scores: Mapping[str, NDArray[np.floating[Any]]],
        candidates: NDArray[np.int64],
        counts: NDArray[np.integer[Any]],
        live: NDArray[np.bool_],
    ) -> NDArray[np.float64]:
        """Return the score [Q, C]; -inf where there is no candidate."""

    def probabilities(
        self,
        scores: Mapping[str, NDArray[np.floating[Any]]],
        candidates: NDArray[np.integer[Any]],
        counts: NDArray[np.integer[Any]],
        *,
        exclude: csr_matrix | None = None,
    ) -> NDArray[np.float64]:
        """Return p [Q, C] of the candidates, not calibrated without a calibration; 0 for padding and excluded cells."""
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

        ``tail`` 0 ranks by p, which is best for P@k; 0.15 to 0.5 trades a little P@k for PSP@k; 1
        maximises PSP@k if p is exact. Ties go to the lower label id; rows with fewer than k
        candidates end with id -1 and score -inf.

        Args:
            scores: head name -> [Q, C] scores, for exactly the heads of the fit.
            candidates: [Q, C] label ids, padded with -1.
            counts: [L] training points of each label.
            k: labels per query.
            exclude: [Q, L], non-zero cells are left out.
            inverse_propensity: [L] label weights; see
                :func:`~megalabel.metrics.propensity.inverse_propensity`.
            tail: exponent of those weights, at least 0.

        Returns:
            ids [Q, k] and the values that they are ranked by.
        """
        if k < 1:
            raise SettingError(f"k must be at least 1, not {k}")
        if not (np.isfinite(tail) and tail >= 0):
            raise SettingError(f"tail must be at least 0, not {tail}")
        value = self._log_probabilities(scores, candidates, counts, exclude)
        ids = np.asarray(candidates, dtype=np.int64)
        if tail:
            value = value + tail * log_values(
                _label_weights(inverse_propensity, counts), ids, "label weights", plus=0.0
            )
        order = best_first(value, ids, k)
        value = np.take_along_axis(value, order, axis=1)
        top = TopK(np.full((len(ids), k), -1, dtype=np.int64), np.full((len(ids), k), -np.inf, dtype=np.float32))
        kept = np.isfinite(value)
        top.ids[:, : order.shape[1]] = np.where(kept, np.take_along_axis(ids, order, axis=1), -1)
        top.scores[:, : order.shape[1]] = np.where(kept, np.exp(value), -np.inf)
        return top

    def _log_probabilities(
        self,
        scores: Mapping[str, NDArray[np.floating[Any]]],
        candidates: NDArray[np.integer[Any]],
        counts: NDArray[np.integer[Any]],
        exclude: csr_matrix | None,
    ) -> NDArray[np.float64]:
        """Return log p [Q, C]; -inf where there is no candidate."""
        if set(scores) != set(self.names):
            raise DataError(
                f"scores of the heads {', '.join(scores) or 'none'}, but this model fuses {', '.join(self.names)}",
                remedy="pass exactly those heads",
            )
        labels = label_count(counts)
        candidates = check_candidates(candidates, labels)
        logits = self._logits(scores, candidates, counts, live_cells(candidates, exclude, labels))
        log_odds = logits if self.calibration is None else self.calibration.log_odds(logits)
        log_probabilities: NDArray[np.float64] = log_expit(log_odds)
        return log_probabilities


def cells_to_fit(
    candidates: NDArray[np.integer[Any]],
    targets: csr_matrix,
    counts: NDArray[np.integer[Any]],
    exclude: csr_matrix | None,
) -> tuple[NDArray[np.int64], NDArray[np.bool_], NDArray[np.float64]]:
    """Return the candidates [Q, C] of validation rows, which of them count, and their targets, all checked."""
    labels = label_count(counts)
    candidates = check_candidates(candidates, labels)
    live = live_cells(candidates, exclude, labels)
    truth = values_at(targets, candidates, labels, "targets")
    if not ((truth >= 0) & (truth <= 1)).all():
        raise DataError("targets must lie in [0, 1]")
    if not truth[live].any():
        raise DataError(
            "nothing to fit on: no candidate is relevant", remedy="pass more validation rows or more candidates"
        )
    return candidates, live, truth


def read_names(values: Mapping[str, Any], kind: type[FusedScores], *, least: int) -> tuple[str, ...]:
    """Return the head names in the output of ``to_dict``; raise a DataError if they or the keys are damaged."""
    keys = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    if not isinstance(values, Mapping) or set(values) != set(keys):
        raise DataError(f"a fusion must have {', '.join(keys)}")
    names = values["names"]
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise DataError(f"names must be a list of head names, not {names!r}")
    if len(names) < least or len(set(names)) < len(names):
        raise DataError(f"this fusion needs at least {least} {'head' if least == 1 else 'heads'}, with unique names")
    return tuple(names)


def _label_weights(weights: NDArray[np.floating[Any]] | None, counts: NDArray[np.integer[Any]]) -> NDArray[Any]:
    """Return the label weights; raise if they are missing or their number differs from that of the labels."""
    if weights is None:
        raise SettingError("tail above 0 without label weights", remedy="pass inverse_propensity")
    if np.shape(weights) != np.shape(counts):
        raise DataError(f"label weights {list(np.shape(weights))} for {len(counts)} labels")
    return np.asarray(weights)
