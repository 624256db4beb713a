"""Networks with the weights of a model, over all labels of its state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch

from megalabel.network.spaces import LabelSpace
from megalabel.types import LABELS

if TYPE_CHECKING:
    from torch import Tensor

    from megalabel.model.model import Model
    from megalabel.network.network import Network

__all__ = ["fill_heads", "grown_network"]


def grown_network(model: Model) -> Network:
    """Return a network over every label of the model, added ones as if they had been trained.

    Without added or renamed labels it is that of the model, and otherwise one with the same encoders.
    """
    from megalabel.recipes.build import build_network

    state, network = model.state, model.network
    if state.first == len(state.labels) and not len(state.rows):
        return network
    spaces = {LABELS: LabelSpace(LABELS, len(state.labels)), **state.grown_spaces(network)}
    grown = build_network(model.recipe, dict(network.encoders.items()), spaces)
    fits = fill_heads(grown, state.grown_tensors(network))
    assert fits
    return grown.to(network.device)


def fill_heads(network: Network, tensors: Mapping[str, Tensor]) -> bool:
    """Give the heads of a network these weights; return whether they are exactly those that it has."""
    for name in network.heads:
        prefix = f"heads.{name}."
        network.head(name).resize({key.removeprefix(prefix): tensors[key] for key in tensors if key.startswith(prefix)})
    wanted = network.stored_heads()
    if {name: value.shape for name, value in tensors.items()} != {name: value.shape for name, value in wanted.items()}:
        return False
    with torch.no_grad():
        for name, value in wanted.items():
            value.copy_(tensors[name])
    return True
