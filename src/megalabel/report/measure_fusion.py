"""What only fused models have: how true their probabilities are, and what ``tail`` trades."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from megalabel.fusion.calibrate import expected_calibration_error
from megalabel.metrics.evaluate import evaluate
from megalabel.metrics.propensity import inverse_propensity
from megalabel.model import ROWS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from megalabel.data.dataset import Dataset, Split
    from megalabel.model import Model
    from megalabel.types import TopK

__all__ = ["measure_fusion"]

TAILS = (0.0, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0)
SHOWN = 5  # labels of a text whose probabilities are looked at
BINS = 10
KEPT = ("P@1", "P@5", "PSP@1", "PSP@5")


def measure_fusion(model: Model, data: Dataset, split: str) -> tuple[dict[str, Any] | None, list[dict[str, Any]]]:
    """Return calibration and trade-off of a fused model on a split; nothing for a model without fusion.

    The first has the expected calibration error over the five most probable labels of each text, in points, and for
    each of ten bins of probability how many labels fall there, their mean probability and the share that is right.
    The second has the metrics at several values of ``tail``. The heads are asked once for all of it.
    """
    if model.fusion is None:
        return None, []
    part = data.split(split)
    ranked = _rank(model, part)
    first = ranked[0.0]
    live = first.ids >= 0
    right = np.zeros(first.ids.shape)
    rows = np.broadcast_to(np.arange(len(part))[:, None], first.ids.shape)
    right[live] = np.asarray(part.targets[rows[live], first.ids[live]]).ravel() > 0
    A, B = data.propensity
    trade_off = []
    for tail, found in ranked.items():
        report = evaluate(
            found.ids, part.targets, counts=data.counts, points=data.points, A=A, B=B, filter=part.filter, ks=(1, SHOWN)
        )
        trade_off.append({"tail": tail, **{name: report.metrics[name] for name in KEPT if name in report.metrics}})
    return _calibration(np.clip(first.scores[live].astype(np.float64), 0, 1), right[live]), trade_off


def _rank(model: Model, part: Split) -> dict[float, TopK]:
    """Return the five best labels of every text for each value of ``tail``."""
    from megalabel.types import TopK

    assert model.fusion is not None
    rare = inverse_propensity(model.stats.counts, model.stats.points, *model.stats.propensity)
    blocks: dict[float, list[TopK]] = {tail: [] for tail in TAILS}
    exclude = part.excluded()
    for start in range(0, len(part), ROWS):
        some = slice(start, min(start + ROWS, len(part)))
        ids, scores = model.candidates(part.texts[some], exclude[some])
        for tail, found in blocks.items():
            found.append(model.fusion.rank(scores, ids, model.fitted.counts, SHOWN, inverse_propensity=rare, tail=tail))
    return {
        tail: TopK(np.concatenate([one.ids for one in found]), np.concatenate([one.scores for one in found]))
        for tail, found in blocks.items()
    }


def _calibration(chance: NDArray[np.float64], right: NDArray[np.float64]) -> dict[str, Any]:
    """Return the error and the bins, in percent."""
    place = np.minimum((chance * BINS).astype(np.int64), BINS - 1)
    counts = np.bincount(place, minlength=BINS)
    shares = {
        name: 100 * np.bincount(place, value, minlength=BINS) / np.maximum(counts, 1)
        for name, value in (("predicted", chance), ("observed", right))
    }
    bins = [
        {"low": 100 * number // BINS, "high": 100 * (number + 1) // BINS, "labels": int(counts[number])}
        | {name: float(value[number]) for name, value in shares.items()}
        for number in range(BINS)
    ]
    return {"error": 100 * expected_calibration_error(chance, right, bins=BINS), "labels": len(chance), "bins": bins}
