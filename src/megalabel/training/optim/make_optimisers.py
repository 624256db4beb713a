"""One optimiser for each group of parameters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn
from torch.optim import SGD, AdamW, Optimizer

from megalabel.errors import SettingError, nearest
from megalabel.recipes.optimisers import (
    AdamWSettings,
    LazyAdamWSettings,
    OptimiserSettings,
    RowAdagradSettings,
    SgdSettings,
)
from megalabel.training.optim.row_wise import BlockSGD, LazyAdamW, RowAdagrad

__all__ = ["make_optimisers"]


def make_optimisers(
    groups: Mapping[str, OptimiserSettings], parameters: Mapping[str, Iterable[tuple[str, nn.Parameter]]]
) -> dict[str, Optimizer]:
    """Return one optimiser for each group, by the name of the group and in the order of ``groups``.

    ``parameters`` maps every group name to (name, parameter) pairs, as
    ``module.named_parameters()`` returns them. Frozen parameters are skipped; a group
    without others gets no optimiser. Weight decay applies to matrices and tables, not to
    vectors (the weights of a LayerNorm), single numbers or anything named bias.

    >>> layer = nn.Linear(4, 3)
    >>> groups = {"encoder": AdamWSettings(lr=1e-4, weight_decay=0.01)}
    >>> optimiser = make_optimisers(groups, {"encoder": layer.named_parameters()})["encoder"]
    >>> [(part["names"], part["weight_decay"]) for part in optimiser.param_groups]
    [(['weight'], 0.01), (['bias'], 0.0)]
    """
    for name in parameters:
        if name not in groups:
            raise SettingError(f"no settings for the parameter group {name!r}", remedy=nearest(name, groups))
    owner: dict[nn.Parameter, str] = {}
    optimisers: dict[str, Optimizer] = {}
    for group, settings in groups.items():
        if group not in parameters:
            what = f"parameter group {group!r}: the model has no such group"
            raise SettingError(what, remedy=nearest(group, parameters))
        trained = [(name, parameter) for name, parameter in parameters[group] if parameter.requires_grad]
        for name, parameter in trained:
            if parameter in owner:
                what = f"{name!r} is in the parameter groups {owner[parameter]!r} and {group!r}"
                raise SettingError(what, remedy="put it in one")
            owner[parameter] = group
        if trained:
            optimisers[group] = _make(settings, trained)
    return optimisers


def _make(settings: OptimiserSettings, trained: list[tuple[str, nn.Parameter]]) -> Optimizer:
    """Return the optimiser of one group; what decays and what does not are parts of it."""
    parts = []
    for decays in (True, False):
        pairs = [(name, parameter) for name, parameter in trained if _decays(name, parameter) == decays]
        if pairs:
            part: dict[str, Any] = {
                "params": [parameter for _, parameter in pairs],
                "names": [name for name, _ in pairs],
            }
            parts.append({**part, "weight_decay": settings.weight_decay if decays else 0.0})
    if isinstance(settings, RowAdagradSettings):
        return RowAdagrad(parts, lr=settings.lr, eps=settings.eps)
    if isinstance(settings, LazyAdamWSettings):
        return LazyAdamW(parts, lr=settings.lr, betas=settings.betas, eps=settings.eps)
    half = [name for name, parameter in trained if parameter.dtype in (torch.float16, torch.bfloat16)]
    if isinstance(settings, SgdSettings) and half:
        return BlockSGD(parts, lr=settings.lr, momentum=settings.momentum)
    if isinstance(settings, SgdSettings):
        return SGD(parts, lr=settings.lr, momentum=settings.momentum)
    assert isinstance(settings, AdamWSettings)
    if half:
        what = f"training.tables.kind is 'adamw', which cannot train {half[0]} in half precision"
        raise SettingError(what, remedy="choose sgd, row_adagrad or lazy_adamw")
    fused = all(p.device.type in ("cpu", "cuda") and p.is_floating_point() for _, p in trained)
    return AdamW(parts, lr=settings.lr, betas=settings.betas, eps=settings.eps, fused=fused)


def _decays(name: str, parameter: nn.Parameter) -> bool:
    return parameter.dim() > 1 and name.rpartition(".")[2] != "bias"
