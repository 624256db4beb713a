"""Where free label vectors start: at random, at the label's text, at its points, or in between."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from megalabel.training._rows import cut_tokens
from megalabel.training.vectors import label_side, query_blocks, query_side

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from megalabel.data.dataset import Split
    from megalabel.training.network import Network
    from megalabel.types import Tokens

__all__ = ["start_tables"]

_BLOCK = 16_384  # labels whose texts are encoded at once


@torch.no_grad()
def start_tables(network: Network, split: Split, queries: Tokens, labels: Tokens) -> None:
    """Set the free vectors and biases of every head as its recipe says.

    ``text``: the vector the label's text has as a query of this head. ``points``: the mean
    of the vectors of the label's training points, weighted by relevance. ``mix``: half of
    each; a label without points has its text alone. A bias starts where the label's mean score
    over the training points is the log of its frequency, log((n_l + 1) / (N + 1)), n_l the sum
    of its relevance: a pool of thousands of negatives then begins with a loss of a few units,
    and the history of an adaptive optimiser is not spoilt by its first steps. Memory is that of the
    tables and of a block of texts.
    """
    network.eval()
    own = network.own
    weights = np.asarray(split.targets.sum(axis=0), dtype=np.float32).ravel()[own.start : own.stop]  # n_l
    heads = {name: network.head(name) for name in network.heads}
    starting = {
        name: settings.start
        for name, settings in network.recipe.heads.items()
        if settings.tower == "free" and settings.start != "random"
    }
    pointed = [name for name, start in starting.items() if start != "text"]
    means = None
    if pointed or any(head.bias is not None for head in heads.values()):
        means = _add_up_points(network, split, queries, pointed, weights)
    for start in range(0, len(own) if starting else 0, _BLOCK):
        rows = slice(start, min(start + _BLOCK, len(own)))
        texts = query_side(network, cut_tokens(labels, own.start + rows.start, own.start + rows.stop))
        for name, how in starting.items():
            head, table = heads[name], heads[name].table
            assert table is not None
            scale = 1.0 if head.bias is None else head.temperature()  # which query_side has divided by
            table[rows] = _start(how, texts[name].to(table), table[rows], weights[rows]) * scale
    for name, head in heads.items():
        if head.bias is not None and means is not None:
            head.bias.zero_()
            scores = label_side(network, labels)[name].vectors @ means[name]
            counts = np.bincount(split.targets.indices, split.targets.data, minlength=network.labels)
            wanted = torch.from_numpy(np.log((counts[own.start : own.stop] + 1) / (len(split) + 1))).to(scores)
            head.bias.copy_(wanted - scores)


def _add_up_points(
    network: Network, split: Split, queries: Tokens, pointed: Sequence[str], weights: NDArray[np.float32]
) -> dict[str, Tensor]:
    """Put into the tables ``pointed`` the mean of the points of each label; return the mean of all, by head.

    Block by block, so that the vectors of all points are never held; sums are where their table is.
    """
    tables = {name: table for name in pointed if (table := network.head(name).table) is not None}
    sums = {name: table.detach().cpu().numpy() for name, table in tables.items()}
    total: dict[str, Tensor] = {}
    for part in sums.values():
        part[:] = 0
    for rows, found in query_blocks(network, queries):
        by_label = split.targets[rows].T.tocsr()[network.own.start : network.own.stop]
        some = np.flatnonzero(np.diff(by_label.indptr))  # few of millions of labels have a point in a block
        for name, vectors in found.items():
            if name in sums:
                points = vectors.cpu().numpy()
                for start in range(0, len(some), 4 * _BLOCK):
                    few = some[start : start + 4 * _BLOCK]
                    sums[name][few] += by_label[few] @ points
            total[name] = total.get(name, torch.zeros(())).to(vectors) + vectors.sum(dim=0)
    scale = np.divide(1.0, weights, out=np.zeros_like(weights), where=weights > 0)[:, None]
    for name, part in sums.items():
        part *= scale
        tables[name].copy_(torch.from_numpy(part))
    return {name: part / len(split) for name, part in total.items()}


def _start(how: str, texts: Tensor, means: Tensor, weights: NDArray[np.float32]) -> Tensor:
    """Return the vectors of some labels; those without points have only their text."""
    if how == "text":
        return texts
    alone = torch.from_numpy(weights == 0).to(texts.device).unsqueeze(1)
    return torch.where(alone, texts, means if how == "points" else (texts + means) / 2)
