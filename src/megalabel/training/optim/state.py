"""The state of an optimiser as named tensors and plain numbers, ready for safetensors and JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

from torch import Tensor
from torch.optim import AdamW, Optimizer

from megalabel.errors import DataError

__all__ = ["flatten_state", "restore_state", "row_state"]

REMEDY = "resume with the recipe and the data of the run"


def flatten_state(optimiser: Optimizer) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the whole state of an optimiser as (tensors, scalars); nothing is copied.

    Tensors are named "<place of the parameter>.<what>", for example "0.exp_avg"; scalars
    are JSON-able: the settings of every group and the state that is not a tensor.

    >>> import torch
    >>> weight = torch.nn.Parameter(torch.zeros(2))
    >>> weight.grad = torch.ones(2)
    >>> optimiser = torch.optim.AdamW([weight])
    >>> optimiser.step()
    >>> sorted(flatten_state(optimiser)[0])
    ['0.exp_avg', '0.exp_avg_sq', '0.step']
    """
    saved = optimiser.state_dict()
    tensors: dict[str, Tensor] = {}
    scalars: dict[str, Any] = {"groups": saved["param_groups"], "values": {}}
    for place, state in saved["state"].items():
        for key, value in state.items():
            if isinstance(value, Tensor):
                tensors[f"{place}.{key}"] = value.detach()
            else:
                scalars["values"][f"{place}.{key}"] = value
    return tensors, scalars


def restore_state(optimiser: Optimizer, tensors: Mapping[str, Tensor], scalars: Mapping[str, Any]) -> None:
    """Load the result of :func:`flatten_state`, also after a round trip through JSON.

    Tensors are copied, so they may be mapped from a file. State of other parameters raises a
    DataError and changes nothing.
    """
    groups = [dict(group) for group in scalars["groups"]]
    now = optimiser.param_groups
    sizes, expected = ([len(group["params"]) for group in each] for each in (groups, now))
    if sizes != expected:
        what = f"the saved optimiser has groups of {sizes} parameters, this one of {expected}"
        raise DataError(what, remedy=REMEDY)
    for group, present in zip(groups, now, strict=True):
        for old, new in zip(group.get("names", []), present.get("names", []), strict=False):
            if old != new:
                raise DataError(f"the saved optimiser has {old!r} where this one has {new!r}", remedy=REMEDY)
        for key, value in group.items():
            if isinstance(value, list) and isinstance(present.get(key), tuple):
                group[key] = tuple(value)
    parameters = list(chain.from_iterable(group["params"] for group in now))
    state: dict[int, dict[str, Any]] = {}
    for name, value in chain(tensors.items(), scalars["values"].items()):
        place, _, key = name.partition(".")
        if isinstance(value, Tensor):
            _check_shape(name, value, parameters[int(place)])
            value = value.detach().clone()
        state.setdefault(int(place), {})[key] = value
    optimiser.load_state_dict({"state": state, "param_groups": groups})


def row_state(optimiser: Optimizer, names: Iterable[str], tables: Mapping[str, Tensor]) -> set[str]:
    """Return the names of state with at least one number per row of these tables.

    >>> import torch
    >>> table = torch.nn.Parameter(torch.zeros(2, 3))
    >>> optimiser = torch.optim.AdamW([{"params": [table], "names": ["heads.a.table"]}])
    >>> sorted(row_state(optimiser, ["0.exp_avg", "0.exp_avg_sq", "0.step"], {"heads.a.table": table}))
    ['0.exp_avg', '0.exp_avg_sq']
    """
    parameters = list(chain.from_iterable(group["params"] for group in optimiser.param_groups))
    places = {place for place, part in enumerate(parameters) if any(part is table for table in tables.values())}
    shared = {"step"} if isinstance(optimiser, AdamW) else set()  # one number for the whole table
    return {name for name in names if int(name.partition(".")[0]) in places and name.partition(".")[2] not in shared}


def _check_shape(name: str, value: Tensor, parameter: Tensor) -> None:
    """Accept one number for all, one per row, or one per entry."""
    if value.shape not in ((), parameter.shape[:1], parameter.shape):
        what = f"the saved {name} has shape {list(value.shape)}, its parameter has {list(parameter.shape)}"
        raise DataError(what, remedy=REMEDY)
