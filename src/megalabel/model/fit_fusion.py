"""Fit the fusion of a model's heads on validation rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from megalabel.fusion import FusedScores, Fusion, TreeFusion
from megalabel.model.cut import DEPTH

if TYPE_CHECKING:
    from megalabel.data.dataset import Dataset
    from megalabel.model.model import Model
    from megalabel.types import TopK

__all__ = ["fit_fusion"]


def fit_fusion(model: Model, data: Dataset, say: Callable[[str], None]) -> tuple[FusedScores, TopK]:
    """Fit the fusion of all heads on the validation rows; return it with the best labels of these rows.

    Rows that carry the only point of a label are never held out, so such a label cannot be right in a row that was:
    there it is no candidate, so that rare labels do not look worse than they are.
    """
    val = data.split("val")
    ids, scores = model.candidates(val.texts, val.excluded())
    if data.before is not None:
        ids = np.where((ids >= 0) & (data.counts[ids] > 1), ids, -1)
    rows = scores, ids, val.targets, model.fitted.counts
    predict = model.recipe.predict
    fusion = TreeFusion.fit(*rows, beta=predict.beta) if predict.weights == "tree" else Fusion.fit(*rows)
    say(f"fusion of {', '.join(model.heads)} fitted on {len(val):,} validation texts")
    return fusion, fusion.rank(scores, ids, model.fitted.counts, min(DEPTH, predict.candidates))
