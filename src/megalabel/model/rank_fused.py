"""Rank what the heads of a fused model propose."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from megalabel.fusion import then_others, union
from megalabel.metrics.propensity import inverse_propensity
from megalabel.progress import progress
from megalabel.types import TopK

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from scipy.sparse import csr_matrix

    from megalabel.fusion import FusedScores
    from megalabel.heads.answers import Answers
    from megalabel.model.labels import LabelState

__all__ = ["propose", "rank_fused", "rank_texts"]

ROWS = 1024  # queries fused at once
CELLS = 1 << 22  # scores of a head held at once where all labels are ranked


def propose(
    answers: Mapping[str, Answers], count: int, exclude: csr_matrix | None, *more: TopK
) -> tuple[NDArray[np.int64], dict[str, NDArray[np.float32]]]:
    """Return the labels [n, C] that any head has among its best ``count``, or ``more`` hold, and all heads' scores."""
    ids = union(*more, *(answer.best(count, exclude) for answer in answers.values()))
    return ids, {name: answer.score(ids) for name, answer in answers.items()}


def rank_fused(
    fusion: FusedScores,
    state: LabelState,
    answers: Mapping[str, Answers],
    candidates: int,
    k: int,
    exclude: csr_matrix | None,
    tail: float,
) -> TopK:
    """Rank the candidates of all heads by the fusion; for a larger k, all other labels behind them."""
    stats = state.stats
    rare = inverse_propensity(stats.counts, stats.points, *stats.propensity) if tail else None
    rank = partial(fusion.rank, counts=state.fitted.counts, inverse_propensity=rare, tail=tail)
    ids, scores = propose(answers, min(candidates, len(state.labels)), exclude)
    top = rank(scores, ids, k=k)
    if k <= candidates or np.all(top.ids >= 0):
        return top
    ids = np.tile(np.setdiff1d(np.arange(len(state.labels)), state.removed), (len(ids), 1))
    scores = {name: answer.score(ids) for name, answer in answers.items()}
    return then_others(top, rank(scores, ids, k=ids.shape[1], exclude=exclude))


def rank_texts(
    fusion: FusedScores,
    state: LabelState,
    texts: Sequence[str],
    answers: Callable[[Sequence[str]], Mapping[str, Answers]],
    candidates: int,
    k: int,
    exclude: csr_matrix | None,
    tail: float,
) -> TopK:
    """Do the same as :func:`rank_fused` for texts, a block at a time."""
    if len(texts) == 0 and not isinstance(texts, str):
        return TopK(np.empty((0, k), dtype=np.int64), np.empty((0, k), dtype=np.float32))
    parts = []
    rows = ROWS if k <= candidates else min(ROWS, max(1, CELLS // len(state.labels)))
    with progress("searching", total=len(texts), unit="queries") as step:
        for start in range(0, len(texts), rows):
            block = slice(start, min(start + rows, len(texts)))
            out = None if exclude is None else exclude[block]
            parts.append(rank_fused(fusion, state, answers(texts[block]), candidates, k, out, tail))
            step(block.stop - start)
    return TopK(np.concatenate([part.ids for part in parts]), np.concatenate([part.scores for part in parts]))
