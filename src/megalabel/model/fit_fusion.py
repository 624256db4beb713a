"""Fit the fusion of a model's heads on validation rows, as far as there are enough."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from megalabel.fusion import FusedScores, Fusion, TreeFusion
from megalabel.fusion.candidates import values_at
from megalabel.model.cut import DEPTH
from megalabel.wording import counted

if TYPE_CHECKING:
    from megalabel.data.dataset import Dataset
    from megalabel.model.model import Model
    from megalabel.types import TopK

__all__ = ["CALIBRATED", "fit_fusion"]

CALIBRATED = 30  # validation rows to calibrate on; fewer say nothing about how often a score is right
PLAIN_ROWS = 500  # train rows that give the scale of the heads' scores where there are no validation rows


def fit_fusion(model: Model, data: Dataset, say: Callable[[str], None]) -> tuple[FusedScores, TopK | None]:
    """Fit the fusion of all heads on the validation rows, and return it with the best labels of these rows.

    With too few rows there is no calibration, or no fit at all.

    Rows that carry the only point of a label are never held out, so such a label cannot be right in a row that was:
    there it is no candidate, so that rare labels do not look worse than they are.
    """
    counts, heads = model.fitted.counts, ", ".join(model.heads)
    if data.val is None:
        say(f"fusion of {heads}: no validation texts, so their scores count alike and are not calibrated")
        return _plain(model, data), None
    val, texts = data.val, counted(len(data.val), "validation text")
    ids, scores = model.candidates(val.texts, val.excluded())
    if data.before is not None:
        ids = np.where((ids >= 0) & (data.counts[ids] > 1), ids, -1)
    predict = model.recipe.predict
    depth = min(DEPTH, predict.candidates)
    if not values_at(val.targets, ids, len(data.labels), "targets").any():
        say(f"fusion of {heads}: no head finds a label of {texts}, so their scores count alike and are not calibrated")
        plain = _plain(model, data)
        return plain, plain.rank(scores, ids, counts, depth)
    rows = scores, ids, val.targets, counts
    fusion = TreeFusion.fit(*rows, beta=predict.beta) if predict.weights == "tree" else Fusion.fit(*rows)
    if len(val) < CALIBRATED:
        say(f"fusion of {heads} fitted on {texts}; too few to calibrate scores, which takes {CALIBRATED}")
        fusion = replace(fusion, calibration=None)
    else:
        say(f"fusion of {heads} fitted on {texts}")
    return fusion, fusion.rank(scores, ids, counts, depth)


def _plain(model: Model, data: Dataset) -> Fusion:
    """Return a fusion in which all heads count alike, on the scale of wrong labels of train rows."""
    rows = np.unique(np.linspace(0, len(data.train) - 1, PLAIN_ROWS).astype(np.int64))
    some = data.train.rows(rows)
    ids, scores = model.candidates(some.texts, (some.targets + some.excluded()).tocsr())
    ids = np.where(values_at(some.targets, ids, len(data.labels), "targets") == 0, ids, -1)
    return Fusion.plain(scores, ids, model.fitted.counts)
