"""The state of a training as named tensors, whole and rows of labels apart, and back from a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from megalabel.training.averaging import PREFIX
from megalabel.training.optim import flatten_state, restore_state, row_state

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer

    from megalabel.network.network import Network
    from megalabel.training.checkpoint import Checkpoint

__all__ = ["collect_state", "load_weights", "restore_optimisers"]


def collect_state(
    network: Network, optimisers: Mapping[str, Optimizer], means: Mapping[str, Tensor] | None = None
) -> tuple[dict[str, Tensor], dict[str, Tensor], dict[str, Any]]:
    """Return what all ranks have, the rows of this rank's own labels, and the scalars of the optimisers.

    ``means`` are averages of weights, by name, if there are any.
    """
    tensors = {f"network.{name}": value for name, value in network.stored().items()}
    rows = {f"network.{name}" for name in network.sharded()}
    tensors |= {f"{PREFIX}{name}": value for name, value in (means or {}).items()}
    rows |= {f"{PREFIX}{name}" for name in network.sharded() if name in (means or {})}
    scalars = {}
    for group, optimiser in optimisers.items():
        state, scalars[group] = flatten_state(optimiser)
        tensors |= {f"optimiser.{group}.{name}": value for name, value in state.items()}
        rows |= {f"optimiser.{group}.{name}" for name in row_state(optimiser, state, network.sharded())}
    return tensors, {name: tensors.pop(name) for name in sorted(rows)}, scalars


@torch.no_grad()
def load_weights(network: Network, checkpoint: Checkpoint, *, averaged: bool = False) -> None:
    """Give a network its weights back: of rows of labels, those that are here.

    ``averaged`` gives it those that were evaluated: the averages, if the checkpoint holds some.
    """
    rows, means = network.label_rows(), set(checkpoint.names()) if averaged else set()
    for name, value in network.stored().items():
        part = f"{PREFIX}{name}" if f"{PREFIX}{name}" in means else f"network.{name}"
        value.copy_(checkpoint.part(part, network.row_owner(name) if name in rows else None))


def restore_optimisers(network: Network, optimisers: Mapping[str, Optimizer], checkpoint: Checkpoint) -> None:
    """Give the optimisers of a network back what they remember, whatever number of ranks wrote it down."""
    for group, optimiser in optimisers.items():
        prefix = f"optimiser.{group}."
        names = [name.removeprefix(prefix) for name in checkpoint.names() if name.startswith(prefix)]
        owner = {
            name: network.row_owner(table)
            for table, parameter in network.label_rows().items()
            for name in row_state(optimiser, names, {table: parameter})
        }
        tensors = {name: checkpoint.part(f"{prefix}{name}", owner.get(name)) for name in names}
        restore_state(optimiser, tensors, checkpoint.state["optimisers"][group])
