"""Sets of labels: how good the labels above a threshold are, for every threshold at once."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from megalabel.errors import DataError
from megalabel.metrics.hits import find_hits

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from scipy.sparse import csr_matrix

__all__ = ["SetCurve", "SetFigures", "set_curve", "sure_precision"]

PRECISIONS = (*range(5, 50, 5), *range(50, 100))  # percent; a short curve has the largest set that reaches each
SIZES = 16  # and so many sizes from the smallest to the largest
LEAST = 20  # labels returned in all
_Z = 1.645  # a normal value is smaller in 95% of all cases


@dataclass(frozen=True)
class SetFigures:
    """Figures of the sets of labels with a score of at least ``threshold``; all but two are percentages.

    With tp hits, fp wrong labels and fn missed labels, precision is tp / (tp + fp), recall tp / (tp + fn) and F1
    2 tp / (2 tp + fp + fn), 0 where the denominator is. ``precision``, ``recall`` and ``micro_f1`` count the pairs of
    all texts together; ``sample_f1`` is the mean of the F1 of every text, ``macro_f1`` that of every label.
    """

    threshold: float
    precision: float
    recall: float
    micro_f1: float
    sample_f1: float
    macro_f1: float
    labels_per_text: float  # the mean
    empty: float  # texts without a label

    def to_dict(self) -> dict[str, float]:
        """Return plain numbers, ready for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class SetCurve:
    """The figures of :class:`SetFigures` at T thresholds, highest first, as arrays."""

    threshold: NDArray[np.float64]  # [T]
    precision: NDArray[np.float64]
    recall: NDArray[np.float64]
    micro_f1: NDArray[np.float64]
    sample_f1: NDArray[np.float64]
    macro_f1: NDArray[np.float64]
    labels_per_text: NDArray[np.float64]
    empty: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.threshold)

    def figures(self, place: int) -> SetFigures:
        """Return the figures at the threshold of that number."""
        threshold, *figures = (float(values[place]) for values in vars(self).values())
        return SetFigures(threshold, *(round(figure, 6) for figure in figures))

    def rows(self) -> list[SetFigures]:
        """Return the figures at all thresholds."""
        return [self.figures(place) for place in range(len(self))]

    def best(self, figure: str) -> int:
        """Return the number of the threshold at which a figure is highest; of equal ones, the highest threshold."""
        return int(np.argmax(vars(self)[figure]))

    def reaching(self, precision: float, rows: int) -> int | None:
        """Return the number of the lowest threshold with surely this precision, in percent; None if there is none."""
        enough = np.flatnonzero(sure_precision(self.precision, self.labels_per_text * rows) >= precision)
        return int(enough[-1]) if len(enough) else None

    def short(self, rows: int) -> list[SetFigures]:
        """Return a small table: the best thresholds for every F1 and for PRECISIONS, and some between.

        Thresholds that return fewer than LEAST labels for the ``rows`` measured are left out, unless all do: their
        figures are chance.
        """
        labels = np.rint(self.labels_per_text * rows)
        first = int(np.argmax(labels >= min(LEAST, labels[-1])))
        places = {self.best(name) for name in ("micro_f1", "sample_f1", "macro_f1")}
        places |= {place for goal in PRECISIONS if (place := self.reaching(float(goal), rows)) is not None}
        sizes = np.geomspace(labels[first], labels[-1], SIZES)
        places |= set(np.minimum(np.searchsorted(labels, sizes), len(self) - 1).tolist())
        return [self.figures(place) for place in sorted(places) if place >= first]


def set_curve(
    ids: NDArray[np.integer[Any]],
    scores: NDArray[np.floating[Any]],
    truth: csr_matrix,
    *,
    thresholds: NDArray[np.float64] | None = None,
) -> SetCurve:
    """Measure the labels above every threshold that makes a difference, or above those given.

    Args:
        ids: [N, K] label ids, best first, -1 where there is none; filtered pairs are out already. What lies beyond
            the K labels of a text is never returned.
        scores: [N, K] their scores, not increasing along a row.
        truth: [N, L] sparse relevance.
        thresholds: measure at these, in this order; by default one halfway between every two neighbouring scores.

    Raises:
        DataError: shapes do not match, there is no label to return, or none that is relevant.

    >>> from scipy.sparse import csr_matrix
    >>> truth = csr_matrix([[1, 1, 0], [0, 0, 1]])
    >>> curve = set_curve(np.array([[0, 2], [1, 2]]), np.array([[0.9, 0.3], [0.7, 0.5]]), truth)
    >>> curve.threshold.round(2).tolist(), curve.micro_f1.round(1).tolist()
    ([0.8, 0.6, 0.4, 0.3], [50.0, 40.0, 66.7, 57.1])
    >>> curve.sample_f1.round(1).tolist(), curve.figures(curve.best("micro_f1")).labels_per_text
    ([33.3, 33.3, 66.7, 58.3], 1.5)
    """
    values = np.asarray(scores, dtype=np.float64)
    hits = find_hits(ids, truth)
    if values.shape != hits.ids.shape:
        raise DataError(f"scores {list(values.shape)} for label ids {list(hits.ids.shape)}")
    total = int(hits.relevant.sum())
    right = np.zeros(values.shape, dtype=bool)
    right[hits.row, hits.rank] = True
    live = (hits.ids >= 0) & (values > -np.inf)
    if not live.any() or not total:
        raise DataError("there are no sets to measure: no label was found, or none is relevant")
    ordered = np.argsort(-values[live], kind="stable")
    score, hit = values[live][ordered], right[live][ordered]
    row = np.broadcast_to(np.arange(len(values))[:, None], values.shape)[live][ordered]
    label = hits.ids[live][ordered]
    count, found = np.arange(1, len(score) + 1), np.cumsum(hit)
    columns = (
        100 * found / count,
        100 * found / total,
        200 * found / (count + total),
        100 * np.cumsum(_gains(row, hit, hits.relevant)) / hits.rows,
        100 * np.cumsum(_gains(label, hit, np.bincount(hits.truth.indices, minlength=hits.labels))) / hits.labels,
        count / hits.rows,
        100 * (1 - np.cumsum(_first(row)) / hits.rows),
    )
    if thresholds is None:
        ends = np.flatnonzero(np.append(score[1:] != score[:-1], True))
        return SetCurve(_between(score[ends]), *(column[ends] for column in columns))
    ends = np.searchsorted(-score, -np.asarray(thresholds, dtype=np.float64), side="right")  # 0: nothing is returned
    starts = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 100.0)
    padded = (np.append(start, column) for start, column in zip(starts, columns, strict=True))
    return SetCurve(np.asarray(thresholds, dtype=np.float64), *(column[ends] for column in padded))


def sure_precision(precision: NDArray[np.float64], labels: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return what a precision seen on so many labels is at least, with a confidence of 95%; both in percent.

    It is the one-sided bound of Wilson ("Probable inference", JASA 1927). Without it, the threshold chosen for a
    precision would be where chance was kindest.

    >>> sure_precision(np.array([100.0, 90.0, 90.0]), np.array([20.0, 100.0, 10000.0])).round(1).tolist()
    [88.1, 84.0, 89.5]
    """
    share, spread = precision / 100, _Z**2 / labels
    margin = _Z * np.sqrt(share * (1 - share) / labels + spread / (4 * labels))
    bound: NDArray[np.float64] = 100 * (share + spread / 2 - margin) / (1 + spread)
    return bound


def _between(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return thresholds halfway between each of the falling scores and the next; the last score itself."""
    below = np.append(scores[1:], scores[-1])
    middle = (below + (scores - below) / 2).astype(np.float32).astype(np.float64)  # exact as a number of either kind
    return np.where((below < middle) & (middle <= scores), middle, scores)


def _gains(group: NDArray[np.integer[Any]], hit: NDArray[np.bool_], relevant: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return by how much each cell changes the F1 of its group, in which cells are returned one after the other."""
    by_group = np.argsort(group, kind="stable")
    own, first = group[by_group], _first(group)[by_group]
    start = np.maximum.accumulate(np.where(first, np.arange(len(own)), 0))
    size = np.arange(len(own)) - start + 1
    found = np.cumsum(hit[by_group])
    found = found - np.where(start > 0, found[start - 1], 0)
    f1 = 2 * found / (size + relevant[own])
    before = np.where(first, 0.0, np.append(0.0, f1[:-1]))
    gains = np.empty(len(own))
    gains[by_group] = f1 - before
    return gains


def _first(group: NDArray[np.integer[Any]]) -> NDArray[np.bool_]:
    """Return which cells are the first of their group."""
    first = np.zeros(len(group), dtype=bool)
    first[np.unique(group, return_index=True)[1]] = True
    return first
