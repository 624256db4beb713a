"""Where free label vectors start: at random, at the label's text, at its points, or in between."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from megalabel.training.vectors import label_side, query_side

if TYPE_CHECKING:
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
        if settings.tower == "free" and settings.start != "random" and head.table is not None:
            texts = query_side(network, labels) if texts is None else texts
            points = query_side(network, queries) if points is None else points
            scale = 1.0 if head.bias is None else head.temperature()  # which query_side has divided by
            head.table.copy_(_start(settings.start, texts[name], points[name], split) * scale)
        if head.bias is not None:
            points = query_side(network, queries) if points is None else points
            head.bias.zero_()
            scores = label_side(network, labels)[name].vectors @ points[name].mean(dim=0)
            counts = np.bincount(split.targets.indices, split.targets.data, minlength=split.targets.shape[1])
            head.bias.copy_(torch.from_numpy(np.log((counts + 1) / (len(split) + 1))).to(head.bias) - scores)


def _start(how: str, texts: Tensor, points: Tensor, split: Split) -> Tensor:
    if how == "text":
        return texts
    weights = np.asarray(split.targets.sum(axis=0)).ravel()
    scale = np.divide(1.0, weights, out=np.zeros_like(weights), where=weights > 0)
    sums = split.targets.T.tocsr() @ points.cpu().numpy()
    means = torch.from_numpy((sums * scale[:, None]).astype(np.float32)).to(texts.device)
    alone = torch.from_numpy(weights == 0).to(texts.device).unsqueeze(1)
    return torch.where(alone, texts, means if how == "points" else (texts + means) / 2)
