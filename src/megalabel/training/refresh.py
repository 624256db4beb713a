"""Clusters of queries and hard negatives, computed from the current vectors every few epochs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch

from megalabel.batching.negatives import NO_LISTS, mine
from megalabel.index import build_index
from megalabel.network.vectors import fold_labels, fold_queries, label_side, own_queries
from megalabel.training.distributed.cluster import cluster_queries
from megalabel.training.distributed.search import LabelSearch

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from scipy.sparse import csr_matrix
    from torch import Tensor

    from megalabel.batching.settings import Batching
    from megalabel.data.dataset import Split
    from megalabel.network.network import Network
    from megalabel.network.texts import TextTokens

__all__ = ["Refreshed", "refresh"]


@dataclass(frozen=True)
class Refreshed:
    """Plain arrays for a checkpoint; empty before the first refresh, or if the recipe does not use them."""

    clusters: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))  # [N]
    mined: NDArray[np.int32] = field(default_factory=lambda: NO_LISTS)  # [N, top]


def refresh(
    network: Network,
    settings: Batching,
    split: Split,
    queries: TextTokens,
    labels: TextTokens,
    *,
    epoch: int,
    seed: int,
) -> Refreshed:
    """Cluster the training queries and mine their hard negatives with the current vectors.

    The epoch, counted from 0, decides how large the clusters are; those of one query need no vectors.

    The vectors are those of :meth:`~megalabel.network.Network.mining_head`. Negatives come from the index that
    ``batching.negatives.search`` names; an approximate one finds most of the best wrong labels. With several ranks,
    each encodes its share of the queries and searches its shard of the labels for all queries.
    """
    name = network.mining_head()
    clusters, mined = Refreshed().clusters, Refreshed().mined
    ranks = network.ranks
    parts: Iterable[tuple[NDArray[np.int64], Tensor]]
    parts = ((rows, vectors[name]) for rows, vectors in own_queries(network, queries))
    size = settings.cluster_size(epoch, len(queries))
    if settings.clusters and size == 1:
        clusters = np.arange(len(queries), dtype=np.int64)
    elif settings.clusters:
        blocks, shares = zip(*parts, strict=True)
        sizes, vectors = [len(part) for part in shares], torch.cat(shares)
        del shares  # the memory is needed
        own_rows = np.concatenate([rows[(share := ranks.share(len(rows))).start : share.stop] for rows in blocks])
        clusters = cluster_queries(vectors, own_rows, len(queries), size, seed=seed, ranks=ranks)
        parts = zip(blocks, torch.split(vectors, sizes), strict=True)
    if settings.mining is not None:
        search, top = settings.mining.search, settings.mining.top
        side, weights = label_side(network, labels), {name: 1.0}
        vectors, bias = fold_labels(side, weights) if settings.mining.bias else (side[name].vectors, False)
        del side
        local = build_index(vectors, search.kind, seed=seed % 2**31, **search.options())
        index = LabelSearch(local, network.labels, ranks)
        lists = [
            mine(
                fold_queries({name: ranks.gather(part, ranks.sizes(len(rows)))}, weights, bias=True)
                if bias
                else ranks.gather(part, ranks.sizes(len(rows))),
                index,
                *_pairs(split, rows),
                top,
            )
            for rows, part in parts
        ]
        mined = np.concatenate(lists)
    return Refreshed(clusters, mined)


def _pairs(split: Split, rows: NDArray[np.int64]) -> tuple[csr_matrix, NDArray[np.int64]]:
    """Return targets and filter pairs of a block of consecutive rows."""
    first, last = int(rows[0]), int(rows[-1]) + 1
    pairs = split.filter[(split.filter[:, 0] >= first) & (split.filter[:, 0] < last)]
    return split.targets[first:last], pairs - np.array([[first, 0]])
