"""Where free label vectors start: at random, at the label's text, at its points, or in between."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from megalabel.training.vectors import label_side, query_blocks, query_side

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from megalabel.data.dataset import Split
    from megalabel.training.network import Network
    from megalabel.types import Tokens

__all__ = ["start_tables"]


@torch.no_grad()
def start_tables(network: Network, split: Split, queries: Tokens, labels: Tokens) -> None:
    """Set the free vectors and biases of every head as its recipe says.

    ``text``: the vector the label's text has as a query of this head. ``points``: the mean
    of the vectors of the label's training points, weighted by relevance. ``mix``: half of
    each; a label without points has its text alone. A bias starts where the label's mean score
    over the training points is the log of its frequency, log((n_l + 1) / (N + 1)), n_l the sum
    of its relevance: a pool of thousands of negatives then begins with a loss of a few units,
    and the history of an adaptive optimiser is not spoilt by its first steps.
    """
    network.eval()
    texts = points = None
    for name, settings in network.recipe.heads.items():
        head = network.head(name)
        starts = settings.tower == "free" and settings.start != "random" and head.table is not None
        if points is None and (head.bias is not None or (starts and settings.start != "text")):
            points = _Points.of(network, split, queries)
        if starts and head.table is not None:
            texts = query_side(network, labels) if texts is None else texts
            scale = 1.0 if head.bias is None else head.temperature()  # which query_side has divided by
            means = None if points is None else points.means[name]
            head.table.copy_(_start(settings.start, texts[name], means, split).to(head.table) * scale)
        if head.bias is not None and points is not None:
            head.bias.zero_()
            scores = label_side(network, labels)[name].vectors @ points.mean[name]
            counts = np.bincount(split.targets.indices, split.targets.data, minlength=split.targets.shape[1])
            wanted = torch.from_numpy(np.log((counts + 1) / (len(split) + 1))).to(scores)
            head.bias.copy_(wanted - scores)


@dataclass(frozen=True)
class _Points:
    """Means of query vectors, by head."""

    means: dict[str, Tensor]  # [L, d] of the points of each label, weighted by relevance
    mean: dict[str, Tensor]  # [d] of all points

    @classmethod
    def of(cls, network: Network, split: Split, queries: Tokens) -> _Points:
        """Add up block by block, so that the vectors of all points are never held."""
        sums: dict[str, NDArray[np.float32]] = {}
        total: dict[str, Tensor] = {}
        for rows, found in query_blocks(network, queries):
            by_label = split.targets[rows].T.tocsr()
            for name, vectors in found.items():
                sums[name] = sums.get(name, np.float32(0)) + by_label @ vectors.cpu().numpy()
                total[name] = total.get(name, torch.zeros(())).to(vectors) + vectors.sum(dim=0)
        weights = np.asarray(split.targets.sum(axis=0)).ravel()
        scale = np.divide(1.0, weights, out=np.zeros_like(weights), where=weights > 0)[:, None]
        means = {name: torch.from_numpy((part * scale).astype(np.float32)) for name, part in sums.items()}
        return cls(
            {name: part.to(total[name].device) for name, part in means.items()},
            {name: part / len(split) for name, part in total.items()},
        )


def _start(how: str, texts: Tensor, means: Tensor | None, split: Split) -> Tensor:
    if how == "text" or means is None:
        return texts
    weights = np.asarray(split.targets.sum(axis=0)).ravel()
    alone = torch.from_numpy(weights == 0).to(texts.device).unsqueeze(1)
    return torch.where(alone, texts, means if how == "points" else (texts + means) / 2)
