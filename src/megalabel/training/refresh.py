"""What is made anew every few epochs from the current vectors: clusters of queries and hard negatives."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch

from megalabel.batching.clusters import balanced_clusters
from megalabel.batching.negatives import mine
from megalabel.index import build_index
from megalabel.training.vectors import label_side, query_blocks

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from megalabel.data.dataset import Split
    from megalabel.recipes.schema import Batching
    from megalabel.training.network import Network
    from megalabel.types import Tokens

__all__ = ["Refreshed", "is_due", "refresh"]


@dataclass(frozen=True)
class Refreshed:
    """Plain arrays, so that a checkpoint can hold them; empty where the recipe does not want them."""

    clusters: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))  # [N]
    mined: NDArray[np.int32] = field(default_factory=lambda: np.empty((0, 0), dtype=np.int32))  # [N, top]


def is_due(settings: Batching, epoch: int) -> bool:
    """Say whether clusters and negatives are made anew before this epoch."""
    if settings.order != "clustered" and not settings.negatives.mined:
        return False
    since = epoch - settings.refresh.start
    return since >= 0 and since % settings.refresh.every == 0


def refresh(
    network: Network, settings: Batching, split: Split, queries: Tokens, labels: Tokens, *, seed: int
) -> Refreshed:
    """Cluster the training queries and mine their hard negatives with the vectors of now.

    The first head that reads label texts decides, as in UniDEC (Kharbanda et al. 2024),
    else the first head there is. Negatives come from the index the recipe names under
    ``batching.negatives.search``: of an approximate one, most of the best wrong labels.
    """
    name = next((name for name in network.heads if network.head(name).needs_text), next(iter(network.heads)))
    clusters, mined = Refreshed().clusters, Refreshed().mined
    vectors = None
    if settings.order == "clustered":
        vectors = torch.cat([found[name] for _, found in query_blocks(network, queries)])
        clusters = balanced_clusters(vectors, settings.batch_size, seed=seed)
    if settings.negatives.mined:
        search = settings.negatives.search
        index = build_index(
            label_side(network, labels)[name].vectors, search.kind, seed=seed % 2**31, **search.options()
        )
        if vectors is not None:
            mined = mine(vectors, index, split.targets, split.filter, settings.negatives.top)
        else:
            parts = ((split.rows(rows), found[name]) for rows, found in query_blocks(network, queries))
            found = [mine(some, index, part.targets, part.filter, settings.negatives.top) for part, some in parts]
            mined = np.concatenate(found)
    return Refreshed(clusters, mined)
