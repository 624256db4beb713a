"""What a trained model answers for texts, as calibrated probabilities that another model can learn from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

from megalabel.errors import DataError
from megalabel.fusion import FusedScores
from megalabel.model.fit_fusion import fit_fusion
from megalabel.model.rank_fused import ROWS, rank_fused
from megalabel.network.queries import QueryTexts
from megalabel.progress import progress

if TYPE_CHECKING:
    from megalabel.data.dataset import Dataset
    from megalabel.model.model import Model

__all__ = ["calibrated", "teach"]

LEAST = 1e-3  # a smaller probability is not kept


def calibrated(model: Model, data: Dataset, say: Callable[[str], None]) -> FusedScores:
    """Return what turns the scores of a model into probabilities: its own fusion, or one fitted on validation rows.

    A model whose heads are not fused gives cosines or sums; its heads are fused here, one alone too.
    """
    if model.fusion is not None:
        return model.fusion
    return fit_fusion(model, data, say)[0]


def teach(model: Model, texts: Sequence[str], top: int, fusion: FusedScores) -> sparse.csr_matrix:
    """Return the probabilities [n, L] of the ``top`` best labels of texts that the model may have been trained on.

    A head that remembers its train rows leaves out those equal to a query (see
    :attr:`megalabel.heads.head.Queries.seen`), so that its answer is never just the row's own labels. The other
    heads have learnt from a train text too, and are surer of it than of a new one. Memory grows with n x top.
    """
    state, size = model.state, len(model.state.labels)
    candidates = min(model.recipe.predict.candidates, size)
    parts = []
    model.network.eval()
    with progress("asking the teacher", total=len(texts), unit="texts") as step:
        for start in range(0, len(texts), ROWS):
            block = texts[start : start + ROWS]
            answers = model._answers(state, QueryTexts(block, model.network, state.fitted, seen=True))
            best = rank_fused(fusion, state, answers, candidates, min(top, candidates), None, 0.0)
            kept = (best.ids >= 0) & (best.scores >= LEAST)
            kept &= np.array([bool(text.strip()) for text in block])[:, None]  # an empty text has no labels
            indptr = np.concatenate([[0], np.cumsum(kept.sum(axis=1))])
            cells = np.minimum(best.scores[kept], 1).astype(np.float32), best.ids[kept].astype(np.int32), indptr
            parts.append(sparse.csr_matrix(cells, shape=(len(block), size)))
            step(len(block))
    if not parts:
        raise DataError("there are no texts to ask the teacher about")
    probabilities = sparse.csr_matrix(sparse.vstack(parts))
    probabilities.sort_indices()
    return probabilities
