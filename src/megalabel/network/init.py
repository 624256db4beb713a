"""Initialise dense heads: each head sets its weights from texts and train points."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch

from megalabel.heads.dense.tables import BLOCK
from megalabel.network.vectors import label_side, query_blocks, query_side

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray
    from scipy.sparse import csr_matrix
    from torch import Tensor

    from megalabel.network.network import Network
    from megalabel.network.texts import TextTokens

__all__ = ["init_heads"]


@torch.no_grad()
def init_heads(
    network: Network,
    targets: csr_matrix,
    queries: TextTokens,
    labels: TextTokens,
    *,
    keep: Sequence[str] = (),
    seed: int = 0,
) -> None:
    """Let every head set its free vectors and biases; see :meth:`megalabel.heads.dense.DenseHead.init`.

    Args:
        network: the network.
        targets: [N, L] relevance of the train points.
        queries: their texts.
        labels: the texts of the labels.
        keep: heads that are not initialised, such as those of an earlier stage.
        seed: random seed.
    """
    network.eval()
    means: dict[str, Tensor] = {}
    for name in network.heads:
        if name not in keep:
            network.head(name).init(_InitData(network, name, targets, queries, labels, seed, means))


@dataclass
class _InitData:
    """See :class:`megalabel.heads.head.InitData`."""

    network: Network
    name: str
    label_targets: csr_matrix
    queries: TextTokens
    labels: TextTokens
    seed: int
    means: dict[str, Tensor]  # of query vectors by head, for all heads that are initialised

    @cached_property
    def targets(self) -> csr_matrix:
        return self.network.space(self.name).targets(self.label_targets)

    @property
    def shard(self) -> range:
        return self.network.head(self.name).shard

    def points(self) -> Iterator[tuple[NDArray[np.int64], Tensor]]:
        for rows, sides in query_blocks(self.network, self.queries):
            yield rows, sides[self.name]

    def mean_point(self) -> Tensor:
        if self.name not in self.means:  # one pass over the points serves all heads
            sums: dict[str, Tensor] = {}
            for _, sides in query_blocks(self.network, self.queries):
                for name, vectors in sides.items():
                    sums[name] = vectors.sum(dim=0) + (sums[name] if name in sums else torch.zeros(()).to(vectors))
            self.means.update({name: total / len(self.queries) for name, total in sums.items()})
        return self.means[self.name]

    def group_probabilities(self, head: str) -> Iterator[tuple[NDArray[np.int64], Tensor]]:
        other = self.network.head(head)
        vectors, bias = other.labels(None, None, search=True)
        for rows, sides in query_blocks(self.network, self.queries):
            queries = sides[head] if bias is not None else sides[head] / other.temperature()
            scores = queries @ vectors.T
            yield rows, other.log_probabilities(scores if bias is None else scores + bias)

    def texts(self, start: int, stop: int) -> Tensor:
        if self.network.space(self.name).members is not None:  # groups have no text
            head = self.network.head(self.name)
            return torch.zeros(stop - start, head.dim, device=self.network.device)
        return query_side(self.network, self.labels.cut(start, stop))[self.name]

    def all_texts(self) -> Tensor:
        ranks, shard = self.network.ranks, self.network.shard
        starts = range(shard.start, shard.stop, BLOCK)
        parts = [self.texts(start, min(start + BLOCK, shard.stop)) for start in starts]
        return ranks.gather(torch.cat(parts), ranks.sizes(self.network.labels))

    def encoded_labels(self, start: int, stop: int) -> Tensor:
        encoder = self.network.label_encoder(self.name)
        length = self.network.length(encoder, labels=True)
        vectors = self.network.encode(encoder, self.labels.cut(start, stop)[encoder], length)
        return self.network.tapped(vectors, encoder, self.name)

    def label_vectors(self) -> Tensor:
        if self.network.space(self.name).members is not None:
            return self.network.head(self.name).labels(None, None, search=True)[0]
        return label_side(self.network, self.labels)[self.name].vectors
