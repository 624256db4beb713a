"""Query and label vectors of every dense head, and their concatenation for one index."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from megalabel.network.network import Network
    from megalabel.network.texts import TextTokens

__all__ = [
    "QUERY_BLOCK",
    "EncodedTexts",
    "LabelSide",
    "all_queries",
    "fold_labels",
    "fold_queries",
    "label_side",
    "own_queries",
    "query_blocks",
    "query_side",
    "space_side",
]

QUERY_BLOCK = 16_384  # queries per block


@dataclass(frozen=True)
class LabelSide:
    """Vectors [L, d] and bias [L] (or None) of one head, of all labels or of a rank's shard."""

    vectors: Tensor
    bias: Tensor | None


@torch.no_grad()
def query_side(network: Network, texts: TextTokens) -> dict[str, Tensor]:
    """Return the vectors [Q, d] of queries for every head, ready for search.

    The vectors of a head with a bias are divided by its temperature, so that product and bias have the same
    proportion as in training; other heads give plain products. Vectors stay on the network's device, except on MPS,
    which lacks the float64 that search needs.
    """
    encoded = network.encode_queries(texts)
    sides = {}
    for name in network.heads:
        head, encoder = network.head(name), network.query_encoder(name)
        vectors = head.query(network.tapped(encoded[encoder], encoder, name), search=True)
        sides[name] = _searchable(vectors if head.bias is None else vectors / head.temperature())
    return sides


def query_blocks(network: Network, texts: TextTokens) -> Iterator[tuple[NDArray[np.int64], dict[str, Tensor]]]:
    """Yield the rows of each block of queries and their :func:`query_side`: memory does not grow with the queries.

    With several ranks, each encodes its share of every block, and all get all vectors.
    """
    ranks = network.ranks
    for rows, share in own_queries(network, texts):
        yield rows, {name: ranks.gather(part, ranks.sizes(len(rows))) for name, part in share.items()}


def all_queries(network: Network, texts: TextTokens) -> dict[str, Tensor]:
    """Return the :func:`query_side` of all queries; with several ranks, each encodes a share and all get all."""
    if network.ranks.alone:
        return query_side(network, texts)
    blocks = [sides for _, sides in query_blocks(network, texts)]
    return {name: torch.cat([block[name] for block in blocks]) for name in network.heads}


def own_queries(network: Network, texts: TextTokens) -> Iterator[tuple[NDArray[np.int64], dict[str, Tensor]]]:
    """Yield the rows of each block of queries, and the :func:`query_side` of this rank's share of them."""
    for start in range(0, len(texts), QUERY_BLOCK):
        rows = np.arange(start, min(start + QUERY_BLOCK, len(texts)))
        share = network.ranks.share(len(rows))
        yield rows, query_side(network, texts.take(rows[share.start : share.stop]))


@torch.no_grad()
def space_side(network: Network, texts: TextTokens | None) -> dict[str, LabelSide]:
    """Return the vectors and bias of every label or group of each head's space; ``texts`` are those of the labels.

    With several ranks, each computes those of its shard only.
    """
    encoded: dict[str, Tensor] = {}
    if network.needs_text and texts is not None:
        shard = texts if network.ranks.alone else texts.cut(network.shard.start, network.shard.stop)
        encoded = network.encode_labels(shard)
    sides = {}
    for name in network.heads:
        head, encoder = network.head(name), network.label_encoder(name)
        text = network.tapped(encoded[encoder], encoder, name) if head.needs_text and encoded else None
        vectors, bias = head.labels(None, text, search=True)
        sides[name] = LabelSide(_searchable(vectors), None if bias is None else _searchable(bias))
    return sides


@torch.no_grad()
def label_side(
    network: Network, texts: TextTokens | None, sides: Mapping[str, LabelSide] | None = None
) -> dict[str, LabelSide]:
    """Return the vectors and bias of all labels for every head; ``sides`` are those of :func:`space_side`, if known.

    A head over groups of labels gives every label the vector of its group. With several ranks, each
    computes those of its shard only.
    """
    sides = space_side(network, texts) if sides is None else sides
    return {name: _of_labels(network, name, side) for name, side in sides.items()}


@dataclass(frozen=True)
class EncodedTexts:
    """The texts that a head was trained on; see :class:`megalabel.heads.head.TrainTexts`."""

    network: Network
    head: str
    queries: TextTokens  # of all train points
    label_texts: TextTokens  # of all labels

    def points(self, ids: Tensor) -> Tensor:
        """Return train points, encoded as queries of the head."""
        return self._encoded(self.queries, ids, self.network.query_encoder(self.head), labels=False)

    def labels(self, ids: Tensor) -> Tensor:
        """Return the texts of labels, encoded for the head."""
        return self._encoded(self.label_texts, ids, self.network.label_encoder(self.head), labels=True)

    def _encoded(self, texts: TextTokens, ids: Tensor, encoder: str, *, labels: bool) -> Tensor:
        tokens = texts.take(ids.cpu().numpy())[encoder]
        length = self.network.length(encoder, labels=labels)
        return self.network.tapped(self.network.encode(encoder, tokens, length), encoder, self.head)


def _of_labels(network: Network, name: str, side: LabelSide) -> LabelSide:
    """Return vectors and bias of the labels from those of their groups."""
    space, ranks = network.space(name), network.ranks
    if space.members is None:
        return side
    groups = torch.from_numpy(space.group_of[network.shard.start : network.shard.stop]).to(side.vectors.device)
    sizes = ranks.sizes(space.size)
    vectors = ranks.gather(side.vectors, sizes).index_select(0, groups)
    return LabelSide(vectors, None if side.bias is None else ranks.gather(side.bias, sizes).index_select(0, groups))


def _searchable(part: Tensor) -> Tensor:
    return part.cpu() if part.device.type == "mps" else part


def fold_queries(side: Mapping[str, Tensor], weights: Mapping[str, float], *, bias: bool) -> Tensor:
    """Concatenate the heads: <folded query, folded label> is the weighted sum of their scores."""
    parts = [weights[name] * side[name] for name in weights]
    if bias:
        parts.append(parts[0].new_ones(len(parts[0]), 1))
    return torch.cat(parts, dim=1)


def fold_labels(side: Mapping[str, LabelSide], weights: Mapping[str, float]) -> tuple[Tensor, bool]:
    """Return the folded (weighted, concatenated) label vectors, and whether their last column is a bias."""
    parts = [side[name].vectors for name in weights]
    biases = [weights[name] * bias for name in weights if (bias := side[name].bias) is not None]
    if biases:
        parts.append(torch.stack(biases).sum(dim=0).unsqueeze(1))
    return torch.cat(parts, dim=1).contiguous(), bool(biases)
