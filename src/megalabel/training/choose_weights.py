"""Choose the weights of heads whose scores are added."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import torch

from megalabel.index import ExactIndex
from megalabel.metrics.measure import measure
from megalabel.network.vectors import LabelSide, fold_labels, fold_queries
from megalabel.ranks import ALONE, Ranks
from megalabel.training.distributed.search import LabelSearch

if TYPE_CHECKING:
    from torch import Tensor

    from megalabel.data.dataset import Dataset
    from megalabel.metrics.report import Report
    from megalabel.types import TopK

__all__ = ["choose_weights", "rank"]

STEPS = 10  # the share of the first head is tried in tenths
CANDIDATES = 50  # of each head, and of all together
ROWS = 256  # rows scored at a time


def rank(
    data: Dataset,
    split: str,
    queries: Mapping[str, Tensor],
    labels: Mapping[str, LabelSide],
    weights: Mapping[str, float],
    ranks: Ranks = ALONE,
) -> Report:
    """Search all labels for the rows of a split with these weights, and measure.

    With several ranks, ``labels`` are those of this rank's shard; all ranks return the same weights.
    """
    best = _search(data, split, queries, labels, weights, 100, ranks)
    return measure(data, best.ids, split)


def choose_weights(
    data: Dataset,
    queries: Mapping[str, Tensor],
    labels: Mapping[str, LabelSide],
    select: str,
    ranks: Ranks = ALONE,
) -> dict[str, float]:
    """Return the weights with the best ``select`` metric on validation rows, by a plain grid.

    The first head is balanced against each other head in turn, in steps of a tenth; equal
    weights win a tie. All weights rank the same candidates, the best of every head alone and of
    all together, so that one search serves all weights.
    """
    names = list(queries)
    best = {name: 1.0 / len(names) for name in names}
    candidates = _candidates(data, queries, labels, best, ranks)
    shard = ranks.share(len(data.labels))
    scores = {name: ranks.sum(_scores(queries[name], labels[name], candidates, shard)) for name in names}

    def value(weights: Mapping[str, float]) -> float:
        mixed = torch.stack([weights[name] * scores[name] for name in names]).sum(dim=0)
        mixed[candidates < 0] = -torch.inf
        order = mixed.sort(dim=1, descending=True, stable=True).indices  # ties go to the lower label id
        return measure(data, candidates.gather(1, order).numpy(), "val").metrics[select]

    best_value = value(best)
    for other in names[1:]:
        total = best[names[0]] + best[other]
        for share in np.linspace(0, 1, STEPS + 1):
            tried = {**best, names[0]: float(total * share), other: float(total * (1 - share))}
            tried_value = value(tried)
            if tried_value > best_value:
                best, best_value = tried, tried_value
    return best


def _search(
    data: Dataset,
    split: str,
    queries: Mapping[str, Tensor],
    labels: Mapping[str, LabelSide],
    weights: Mapping[str, float],
    k: int,
    ranks: Ranks,
) -> TopK:
    vectors, bias = fold_labels(labels, weights)
    index = LabelSearch(ExactIndex(vectors), len(data.labels), ranks)
    return index.search(fold_queries(queries, weights, bias=bias), k, exclude=data.split(split).excluded())


def _candidates(
    data: Dataset,
    queries: Mapping[str, Tensor],
    labels: Mapping[str, LabelSide],
    equal: Mapping[str, float],
    ranks: Ranks,
) -> Tensor:
    """Return labels [Q, C], ascending in each row, with -1 in place of duplicates."""
    ways = (*({name: 1.0} for name in queries), equal)
    top = min(CANDIDATES, len(data.labels))
    rankings = [_search(data, "val", queries, labels, weights, top, ranks).ids for weights in ways]
    ids = np.sort(np.concatenate(rankings, axis=1), axis=1)
    ids[:, 1:][ids[:, 1:] == ids[:, :-1]] = -1
    return torch.from_numpy(ids.astype(np.int64))


def _scores(queries: Tensor, side: LabelSide, candidates: Tensor, shard: range) -> Tensor:
    """Return the scores [Q, C] of one head for the candidates of each row, on the CPU; 0 outside the shard."""
    parts = []
    local = (candidates >= shard.start) & (candidates < shard.stop)
    places = (candidates - shard.start).where(local, 0)
    chunks = (torch.split(part, ROWS) for part in (queries, places.to(queries.device)))
    for rows, ids in zip(*chunks, strict=True):
        scores = torch.bmm(side.vectors[ids], rows.unsqueeze(2)).squeeze(2)
        parts.append(scores if side.bias is None else scores + side.bias[ids])
    return torch.cat(parts).cpu().where(local, 0.0)
