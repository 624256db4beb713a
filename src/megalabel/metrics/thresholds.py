"""How many labels to return: thresholds of the score, chosen on validation rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from megalabel.errors import DataError, SettingError, nearest
from megalabel.metrics.label_sets import SetFigures, set_curve, sure_precision

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from scipy.sparse import csr_matrix

__all__ = ["GOALS", "MIN_ROWS", "SetReport", "Threshold", "Thresholds"]

GOALS = ("micro-f1", "sample-f1", "macro-f1")
MIN_ROWS = 30  # rows with labels, below which a threshold would be chance
_LARGEST = float(np.finfo(np.float32).max)  # of a score


@dataclass(frozen=True)
class Threshold:
    """A text gets the labels with a score of at least ``value``."""

    value: float
    goal: str  # what it was chosen for: one of GOALS, or a precision such as "precision 0.9"
    rows: int  # validation rows it was chosen on
    expected: SetFigures  # figures on those rows

    def summary(self) -> str:
        """Return the choice in a few words."""
        return f"score of at least {self.value:.4g}, chosen for {self.goal} on {self.rows:,} validation texts"

    def brief(self) -> dict[str, Any]:
        """Return value and goal, ready for JSON."""
        return {"value": self.value, "goal": self.goal}


@dataclass(frozen=True)
class Thresholds:
    """What thresholds do on validation rows: a small table from which one is chosen for a goal.

    The table has the best threshold for each F1, the lowest one for every precision from 50 to 99 percent, and some
    between; it is short enough to be stored with a model.

    >>> from scipy.sparse import csr_matrix
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.random((200, 20)) < 0.2
    >>> scores = np.where(truth, 0.6, 0.3) + 0.15 * rng.normal(size=truth.shape)
    >>> ids = np.argsort(-scores, axis=1)
    >>> chosen = Thresholds.fit(ids, np.take_along_axis(scores, ids, axis=1), csr_matrix(truth, dtype=np.float32))
    >>> chosen.choose().goal, 0.4 < chosen.choose().value < 0.6
    ('micro-f1', True)
    >>> chosen.choose(precision=0.95).expected.precision >= 95
    True
    """

    rows: int
    curve: tuple[SetFigures, ...]  # highest threshold first

    @classmethod
    def fit(cls, ids: NDArray[np.integer[Any]], scores: NDArray[np.floating[Any]], truth: csr_matrix) -> Thresholds:
        """Measure rankings [N, K] of validation rows; see :func:`~megalabel.metrics.label_sets.set_curve`.

        Raises:
            DataError: fewer than MIN_ROWS rows have a label, or no relevant label was found.
        """
        labelled = int(np.count_nonzero(np.diff(truth.indptr)))
        if labelled < MIN_ROWS:
            raise DataError(f"{labelled} validation texts with labels, {MIN_ROWS} are needed to choose a threshold")
        curve = set_curve(ids, scores, truth)
        if not curve.recall.any():
            raise DataError("no threshold to choose: no relevant label was found on validation texts")
        return cls(len(ids), tuple(curve.short(len(ids))))

    def choose(self, goal: str | None = None, precision: float | None = None) -> Threshold:
        """Return the best threshold for a goal, or the lowest one with a precision.

        Args:
            goal: ``micro-f1`` (default), ``sample-f1`` or ``macro-f1``.
            precision: share of the returned labels that is correct, above 0 and at most 1; instead of a goal. It is
                reached on validation rows with a margin for chance; see
                :func:`~megalabel.metrics.label_sets.sure_precision`.
        """
        if precision is None:
            goal = GOALS[0] if goal is None else goal
            if goal not in GOALS:
                raise SettingError(f"unknown goal {goal!r}", remedy=nearest(goal, GOALS))
            name = goal.replace("-", "_")
            best = max(self.curve, key=lambda row: float(getattr(row, name)))
            return Threshold(best.threshold, goal, self.rows, best)
        if goal is not None:
            raise SettingError("a goal and a precision are two thresholds", remedy="name one of them")
        if not 0 < precision <= 1:
            raise SettingError(f"precision must be above 0 and at most 1, not {precision:g}", remedy="for example 0.9")
        seen, labels = (
            np.array([getattr(row, name) for row in self.curve]) for name in ("precision", "labels_per_text")
        )
        sure = sure_precision(seen, np.maximum(labels * self.rows, 1))
        if not (sure >= 100 * precision).any():
            raise SettingError(
                f"no threshold surely has a precision of {precision:g}, by the {self.rows:,} validation texts",
                remedy=f"the highest is {np.floor(10 * sure.max()) / 1000:g}",
            )
        best = self.curve[int(np.flatnonzero(sure >= 100 * precision)[-1])]
        return Threshold(best.threshold, f"precision {precision:g}", self.rows, best)

    def to_dict(self) -> dict[str, Any]:
        """Return plain lists and numbers, ready for JSON: the default choice, for people, and the table."""
        best = self.choose()
        return {**best.brief(), "rows": self.rows, "curve": [row.to_dict() for row in self.curve]}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Thresholds:
        """Read the output of :meth:`to_dict`; raise a DataError for anything else."""
        names = {field.name for field in fields(SetFigures)}
        try:
            rows, curve = values["rows"], [dict(row) for row in values["curve"]]
        except (KeyError, TypeError, ValueError):
            raise DataError("a threshold must have rows and a curve") from None
        if not curve or any(set(row) != names for row in curve):
            raise DataError(f"every row of a threshold's curve must have {', '.join(sorted(names))}")
        numbers = [number for row in curve for number in row.values()]
        if type(rows) is not int or rows < 1 or any(type(number) not in (int, float) for number in numbers):
            raise DataError("a threshold must hold numbers")
        if not all(-_LARGEST <= number <= _LARGEST for number in numbers):  # nor NaN
            raise DataError("the numbers of a threshold must be finite")
        falling = [row["threshold"] for row in curve]
        if any(above < below for above, below in pairwise(falling)):
            raise DataError("the thresholds of a curve must fall")
        return cls(rows, tuple(SetFigures(**row) for row in curve))


@dataclass(frozen=True)
class SetReport:
    """What a threshold chosen on validation rows does on other rows, and what the others of the table do there."""

    threshold: Threshold
    figures: SetFigures
    curve: tuple[SetFigures, ...]  # highest threshold first

    @classmethod
    def of(
        cls,
        thresholds: Thresholds,
        ids: NDArray[np.integer[Any]],
        scores: NDArray[np.floating[Any]],
        truth: csr_matrix,
    ) -> SetReport:
        """Measure rankings [N, K]; see :func:`~megalabel.metrics.label_sets.set_curve`."""
        chosen = thresholds.choose()
        values = np.array([chosen.value, *(row.threshold for row in thresholds.curve)])
        figures, *curve = set_curve(ids, scores, truth, thresholds=values).rows()
        return cls(chosen, figures, tuple(curve))

    def to_dict(self) -> dict[str, Any]:
        """Return plain lists and numbers, ready for JSON."""
        figures = self.figures.to_dict()
        del figures["threshold"]
        return {
            **self.threshold.brief(),
            **figures,
            "validation": {"rows": self.threshold.rows, **self.threshold.expected.to_dict()},
            "curve": [row.to_dict() for row in self.curve],
        }
