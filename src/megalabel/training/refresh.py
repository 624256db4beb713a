"""What is made anew every few epochs from the current vectors: clusters of queries and hard negatives."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch

from megalabel.batching.negatives import mine
from megalabel.index import build_index
from megalabel.network.vectors import label_side, own_queries
from megalabel.training.cluster_queries import cluster_queries
from megalabel.training.search_labels import LabelSearch

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
    """Plain arrays, so that a checkpoint can hold them; empty where the recipe does not want them."""

    clusters: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))  # [N]
    mined: NDArray[np.int32] = field(default_factory=lambda: np.empty((0, 0), dtype=np.int32))  # [N, top]


def refresh(
    network: Network, settings: Batching, split: Split, queries: TextTokens, labels: TextTokens, *, seed: int
) -> Refreshed:
    """Cluster the training queries and mine their hard negatives with the vectors of now.

    The vectors are those of :meth:`~megalabel.network.Network.mining_head`. Negatives come from the index that
    ``batching.negatives.search`` names; an approximate one finds most of the best wrong labels. With several ranks,
    each encodes its share of the queries and searches its own labels, for all queries.
    """
    name = network.mining_head()
    clusters, mined = Refreshed().clusters, Refreshed().mined
    ranks = network.ranks
    parts: Iterable[tuple[NDArray[np.int64], Tensor]]
    parts = ((rows, found[name]) for rows, found in own_queries(network, queries))
    if settings.clusters:
        blocks, own = zip(*parts, strict=True)
        sizes, vectors = [len(part) for part in own], torch.cat(own)
        del own  # the memory is needed
        own_rows = np.concatenate([rows[(share := ranks.share(len(rows))).start : share.stop] for rows in blocks])
        clusters = cluster_queries(vectors, own_rows, len(queries), settings.size(len(queries)), seed=seed, ranks=ranks)
        parts = zip(blocks, torch.split(vectors, sizes), strict=True)
    if settings.mining is not None:
        search, top = settings.mining.search, settings.mining.top
        vectors = label_side(network, labels)[name].vectors
        here = build_index(vectors, search.kind, seed=seed % 2**31, **search.options())
        index = LabelSearch(here, network.labels, ranks)
        found = [
            mine(ranks.gather(part, ranks.sizes(len(rows))), index, *_known(split, rows), top) for rows, part in parts
        ]
        mined = np.concatenate(found)
    return Refreshed(clusters, mined)


def _known(split: Split, rows: NDArray[np.int64]) -> tuple[csr_matrix, NDArray[np.int64]]:
    """Return targets and filter pairs of a block of rows that follow on each other."""
    first, last = int(rows[0]), int(rows[-1]) + 1
    pairs = split.filter[(split.filter[:, 0] >= first) & (split.filter[:, 0] < last)]
    return split.targets[first:last], pairs - np.array([[first, 0]])
