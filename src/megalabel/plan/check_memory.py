"""Refuse a training that cannot fit, instead of letting it die half-way."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from megalabel.encoders.cost import find_tokenizer
from megalabel.errors import MegalabelError
from megalabel.plan.changes import remedy
from megalabel.plan.machine import Machine, gpu_memory, main_memory
from megalabel.plan.make_plan import plan_workload
from megalabel.plan.numbers import show_bytes
from megalabel.plan.sizes import Sizes
from megalabel.plan.workload import Workload

if TYPE_CHECKING:
    from megalabel.data.dataset import Dataset
    from megalabel.plan.make_plan import Plan
    from megalabel.recipes.schema import Recipe

__all__ = ["NoRoomError", "check_memory"]


class NoRoomError(MegalabelError):
    """A training would take more memory than there is."""


def check_memory(recipe: Recipe, data: Dataset, device: str = "cpu") -> None:
    """Raise a NoRoomError if the training would take more than all the memory there is, swap included.

    Takes about 50 ms. Raises nothing if something is not known (an encoder of unknown size, a system that does not
    report its memory). The processes that ``torchrun`` has started on this machine share its main memory.

    Args:
        recipe: what is going to be trained.
        data: the data set.
        device: as ``find_device`` returns it: cpu, cuda, cuda:1 or mps.
    """
    try:
        workload, machine = _this_run(recipe, data, device)
        plan = plan_workload(workload, machine)
        if not plan.fits and recipe.encoder.kind != "bag":  # count tokens before refusing
            plan = plan_workload(replace(workload, sizes=Sizes.of(data, find_tokenizer(recipe.encoder))), machine)
    except (MegalabelError, ValueError):
        return  # the training reports the error, and reports it better
    if not plan.fits:
        changes = remedy(plan.changes_with(more_devices=False))
        raise NoRoomError(_shortage(plan), remedy=f"{changes}; or --force to try anyway")


def _this_run(recipe: Recipe, data: Dataset, device: str) -> tuple[Workload, Machine]:
    ranks, local = (max(1, int(os.environ.get(name) or 1)) for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"))
    main = main_memory(swap=True)
    gpu = gpu_memory(device) if device.startswith("cuda") else None
    share = None if main is None else main / local
    machine = Machine(
        devices=ranks,
        gpu=gpu is not None,
        memory=share if gpu is None else gpu,
        host_memory=None if share is None else share * ranks,
    )
    return Workload(recipe, Sizes.of(data), ranks, machine.gpu), machine


def _shortage(plan: Plan) -> str:
    machine, needed = plan.machine, plan.device_bytes
    if machine.memory is not None and needed > machine.memory:
        name, available = ("memory of the GPU" if machine.gpu else "memory"), machine.memory
    else:
        name, needed, available = "main memory", machine.devices * plan.host_bytes, machine.host_memory or 0.0
    each = " for each process" if machine.devices > 1 else ""
    return f"this training would take {show_bytes(needed)} of {name}, there is {show_bytes(available)}{each}"
