"""Optimisers by name: one for each group of parameters, with its own kind and rate.

Dense parts (encoder, projections) train with fused AdamW. Tables with a row per label or
per token train with :class:`RowAdagrad` or :class:`LazyAdamW`, which take sparse gradients
and visit only the rows a step touches: the cost of a step does not grow with the table.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn
from torch.optim import SGD, AdamW, Optimizer

from megalabel.errors import SettingError, nearest
from megalabel.training._clip_gradients import clip_gradients
from megalabel.training._lazy_adamw import LazyAdamW
from megalabel.training._optim_state import flatten_state, restore_state, row_state
from megalabel.training._row_adagrad import RowAdagrad

__all__ = [
    "GroupSettings",
    "LazyAdamW",
    "RowAdagrad",
    "clip_gradients",
    "flatten_state",
    "make_optimisers",
    "restore_state",
    "row_state",
]

SPARSE = {"row_adagrad": True, "lazy_adamw": True, "adamw": False, "sgd": False}


@dataclass(frozen=True)
class GroupSettings:
    """How one group of parameters is trained.

    ``kind`` is "adamw" (fused where torch has it), "row_adagrad", "lazy_adamw" or "sgd";
    ``betas`` are for the two Adams, ``momentum`` for sgd. Weight decay is decoupled
    except for sgd, and never applies to vectors, single numbers or anything named bias.
    """

    name: str
    kind: str = "adamw"
    lr: float = 1e-4
    weight_decay: float = 0.0
    betas: tuple[float, float] = (0.9, 0.999)
    momentum: float = 0.9
    eps: float = 1e-8

    @property
    def sparse(self) -> bool:
        """Tell whether tables of this group should get sparse gradients."""
        return SPARSE.get(self.kind, False)


def make_optimisers(
    groups: Iterable[GroupSettings], parameters: Mapping[str, Iterable[tuple[str, nn.Parameter]]]
) -> dict[str, Optimizer]:
    """Return one optimiser for each group, by the name of the group and in the order given.

    ``parameters`` maps every group name to (name, parameter) pairs, as
    ``module.named_parameters()`` gives them. Frozen parameters are passed over; a group
    that has no others gets no optimiser.

    >>> layer = nn.Linear(4, 3)
    >>> group = GroupSettings("encoder", lr=1e-4, weight_decay=0.01)
    >>> optimiser = make_optimisers([group], {"encoder": layer.named_parameters()})["encoder"]
    >>> [(part["names"], part["weight_decay"]) for part in optimiser.param_groups]
    [(['weight'], 0.01), (['bias'], 0.0)]
    """
    groups = list(groups)
    names = [group.name for group in groups]
    for name in parameters:
        if name not in names:
            raise SettingError(f"no settings for the parameter group {name!r}", remedy=nearest(name, names))
    owner: dict[nn.Parameter, str] = {}
    optimisers: dict[str, Optimizer] = {}
    for group in groups:
        _check(group, names, parameters)
        trained = [(name, parameter) for name, parameter in parameters[group.name] if parameter.requires_grad]
        for name, parameter in trained:
            if parameter in owner:
                what = f"{name!r} is in the parameter groups {owner[parameter]!r} and {group.name!r}"
                raise SettingError(what, remedy="put it in one")
            owner[parameter] = group.name
        if trained:
            optimisers[group.name] = _make(group, trained)
    return optimisers


def _make(group: GroupSettings, trained: list[tuple[str, nn.Parameter]]) -> Optimizer:
    """Return the optimiser of one group; what decays and what does not are parts of it."""
    parts = []
    for decays in (True, False):
        pairs = [(name, parameter) for name, parameter in trained if _decays(name, parameter) == decays]
        if pairs:
            part: dict[str, Any] = {
                "params": [parameter for _, parameter in pairs],
                "names": [name for name, _ in pairs],
            }
            parts.append({**part, "weight_decay": group.weight_decay if decays else 0.0})
    if group.kind == "row_adagrad":
        return RowAdagrad(parts, lr=group.lr, eps=group.eps)
    if group.kind == "lazy_adamw":
        return LazyAdamW(parts, lr=group.lr, betas=group.betas, eps=group.eps)
    if group.kind == "sgd":
        return SGD(parts, lr=group.lr, momentum=group.momentum)
    fused = all(p.device.type in ("cpu", "cuda") and p.is_floating_point() for _, p in trained)
    return AdamW(parts, lr=group.lr, betas=group.betas, eps=group.eps, fused=fused)


def _decays(name: str, parameter: nn.Parameter) -> bool:
    return parameter.dim() > 1 and name.rpartition(".")[2] != "bias"


def _check(group: GroupSettings, names: list[str], parameters: Mapping[str, Any]) -> None:
    """Raise a SettingError for a kind, a name or a number that cannot be."""
    where = f"parameter group {group.name!r}: "
    if group.kind not in SPARSE:
        raise SettingError(f"{where}no optimiser is called {group.kind!r}", remedy=nearest(group.kind, SPARSE))
    if names.count(group.name) > 1:
        raise SettingError(f"{where}there are two of this name", remedy="give every group its own name")
    if group.name not in parameters:
        raise SettingError(f"{where}the model has no such group", remedy=nearest(group.name, parameters))
    for key, value, good in (
        ("lr", group.lr, 0 <= group.lr < math.inf),
        ("weight_decay", group.weight_decay, 0 <= group.weight_decay < math.inf),
        ("betas", group.betas, len(group.betas) == 2 and all(0 <= beta < 1 for beta in group.betas)),
        ("momentum", group.momentum, 0 <= group.momentum < 1),
        ("eps", group.eps, 0 < group.eps < math.inf),
    ):
        if not good:
            rule = "from 0 to below 1" if key in ("betas", "momentum") else "above 0" if key == "eps" else "0 or more"
            raise SettingError(f"{where}{key} is {value}", remedy=f"it must be {rule}")
