"""How much of a ranking is the answer: its first k labels, or those above a threshold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from megalabel.errors import DataError, SettingError
from megalabel.metrics.thresholds import Threshold, Thresholds
from megalabel.types import TopK

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from megalabel.data.dataset import Dataset
    from megalabel.model.ensemble import Ensemble
    from megalabel.model.model import Model

__all__ = ["BEST", "DEPTH", "Cut", "fit_thresholds", "make_cut", "usable"]

BEST = 5  # labels of a text where there is no threshold
DEPTH = 100  # labels of a text at most where there is one


@dataclass(frozen=True)
class Cut:
    """The labels to return from a ranking: the first ``k``, without those whose score is below ``least``."""

    k: int
    least: float | None = None
    threshold: Threshold | None = None  # that ``least`` comes from
    missing: str | None = None  # why there is no threshold

    @property
    def about(self) -> str | None:
        """What a reader of the labels has to know about their number, in one line; None if it was asked for."""
        if self.threshold is not None:
            return f"labels with a {self.threshold.summary()}"
        return None if self.missing is None else f"{self.missing}: the {self.k} best labels of each text"

    def of(self, top: TopK) -> TopK:
        """Return a ranking cut to the answer; the rest of a row is -1 with a score of -inf.

        >>> top = TopK(np.array([[4, 1, 7]]), np.array([[0.9, 0.5, 0.2]], dtype=np.float32))
        >>> Cut(3, 0.5).of(top).ids.tolist(), Cut(1).of(top).ids.tolist()
        ([[4, 1, -1]], [[4]])
        """
        ids, scores = top.ids[:, : self.k], top.scores[:, : self.k]
        if self.least is None:
            return TopK(ids, scores)
        kept = (ids >= 0) & (scores >= self.least)
        return TopK(np.where(kept, ids, -1), np.where(kept, scores, np.float32(-np.inf)))


def make_cut(
    model: Model | Ensemble,
    k: int | None = None,
    *,
    goal: str | None = None,
    precision: float | None = None,
    min_score: float | None = None,
    heads: str = "all",
    tail: float | None = None,
) -> Cut:
    """Return what to cut a ranking to, by these heads with this tail.

    Args:
        model: whose ranking it is.
        k: the k best labels.
        goal: without k, the labels above the best threshold for this F1; see :meth:`Thresholds.choose`.
        precision: without k, the labels above the lowest threshold with this precision.
        min_score: labels with a lower score are dropped; without k it is the threshold.
        heads: ``all``, or the name of one head.
        tail: instead of that of the model.
    """
    named = [name for name, value in (("goal", goal), ("precision", precision)) if value is not None]
    if named and (k is not None or min_score is not None):
        other = "k" if k is not None else "min_score"
        raise SettingError(f"{named[0]} and {other} both say how many labels to return", remedy="leave out one of them")
    if k is not None or min_score is not None:
        if k is not None and k < 1:
            raise SettingError(f"k must be at least 1, not {k}")
        return Cut(_depth(model) if k is None else k, min_score)
    thresholds, missing = usable(model, heads, tail)
    if thresholds is None:
        if named:
            raise SettingError(f"{named[0]} needs a threshold: {missing}", remedy="choose k or min_score")
        return Cut(BEST, missing=missing)
    chosen = thresholds.choose(goal, precision)
    return Cut(_depth(model), chosen.value, chosen)


def _depth(model: Model | Ensemble) -> int:
    """Return how many labels to look at: of a fused model no more than a head proposes, so that not all are scored."""
    return DEPTH if model.fusion is None else min(DEPTH, model.recipe.predict.candidates)


def usable(
    model: Model | Ensemble, heads: str = "all", tail: float | None = None
) -> tuple[Thresholds | None, str | None]:
    """Return the thresholds of a model if they are for such rankings, else None and the reason."""
    tail = model.tail if tail is None else tail
    if model.thresholds is None:
        return None, "no threshold was chosen for this model on validation texts"
    if heads != "all":
        return None, f"the threshold of this model is for all heads, not for {heads} alone"
    if tail:
        return None, f"the threshold of this model is for probabilities, not for scores with a tail of {tail:g}"
    return model.thresholds, None


def fit_thresholds(model: Model, data: Dataset, top: TopK | None, say: Callable[[str], None]) -> Thresholds | None:
    """Choose thresholds on the validation rows of the data, or say in a line why that is not possible.

    Args:
        model: a model that has not seen these rows.
        data: the data.
        top: the best labels of each row; None: the model is asked.
        say: is called with what was chosen.
    """
    if data.val is None:
        say(f"no validation texts to choose a threshold on: predict returns the {BEST} best labels of a text")
        return None
    val = data.val
    if top is None:
        top = model.search(val.texts, min(_depth(model), len(data.labels)), exclude=val.excluded())
        if data.before is not None:  # a label is never right there if a train row has its only point
            top = _without(top, (top.ids >= 0) & (data.counts[top.ids] <= 1))
    try:
        thresholds = Thresholds.fit(top.ids, top.scores, val.targets)
    except DataError as error:
        say(f"{error}: predict returns the {BEST} best labels of a text")
        return None
    best = thresholds.choose()
    say(
        f"{best.summary()}: micro F1 {best.expected.micro_f1:.2f}, sample F1 {best.expected.sample_f1:.2f} "
        f"with {best.expected.labels_per_text:.2f} labels a text"
    )
    return thresholds


def _without(top: TopK, gone: NDArray[np.bool_]) -> TopK:
    """Return a ranking without some of its cells; rows become shorter."""
    order = np.argsort(gone, axis=1, kind="stable")
    left = ~np.take_along_axis(gone, order, axis=1)
    ids, scores = (np.take_along_axis(values, order, axis=1) for values in (top.ids, top.scores))
    return TopK(np.where(left, ids, -1), np.where(left, scores, np.float32(-np.inf)))
