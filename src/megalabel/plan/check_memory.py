"""Stop before a training that cannot fit, in place of dying half-way."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from megalabel.errors import MegalabelError
from megalabel.plan.case import Case
from megalabel.plan.changes import remedy
from megalabel.plan.encoder_size import find_tokenizer
from megalabel.plan.machine import Machine, gpu_memory, main_memory
from megalabel.plan.make_plan import plan_case
from megalabel.plan.numbers import show_bytes
from megalabel.plan.sizes import Sizes

if TYPE_CHECKING:
    from megalabel.data.dataset import Dataset
    from megalabel.plan.planned import Plan
    from megalabel.recipes.schema import Recipe

__all__ = ["NoRoomError", "check_memory"]


class NoRoomError(MegalabelError):
    """A training would take more memory than there is."""


def check_memory(recipe: Recipe, data: Dataset, device: str = "cpu") -> None:
    """Raise a NoRoomError if the training would take more than all the memory there is, swap included.

    It takes some 50 ms. Where something is not known (an encoder of unknown size, a system that does
    not tell its memory), nothing is raised. The processes that ``torchrun`` has started on this
    machine share its main memory.

    Args:
        recipe: what will be trained.
        data: the data set.
        device: where, as ``find_device`` found it: cpu, cuda, cuda:1 or mps.
    """
    try:
        case, machine = _here(recipe, data, device)
        found = plan_case(case, machine)
        if not found.fits and recipe.encoder.kind != "bag":  # count tokens before it is said
            found = plan_case(replace(case, sizes=Sizes.of(data, find_tokenizer(recipe.encoder))), machine)
    except (MegalabelError, ValueError):
        return  # whoever trains will say it, and say it better
    if not found.fits:
        told = remedy(found.changes_with(more_devices=False))
        raise NoRoomError(_what(found), remedy=f"{told}; or --force to try all the same")


def _here(recipe: Recipe, data: Dataset, device: str) -> tuple[Case, Machine]:
    ranks, near = (max(1, int(os.environ.get(name) or 1)) for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"))
    main = main_memory(swap=True)
    gpu = gpu_memory(device) if device.startswith("cuda") else None
    share = None if main is None else main / near
    machine = Machine(
        devices=ranks,
        gpu=gpu is not None,
        memory=share if gpu is None else gpu,
        host_memory=None if share is None else share * ranks,
    )
    return Case(recipe, Sizes.of(data), ranks, machine.gpu), machine


def _what(found: Plan) -> str:
    machine, needed = found.machine, found.device_bytes
    if machine.memory is not None and needed > machine.memory:
        name, there = ("memory of the GPU" if machine.gpu else "memory"), machine.memory
    else:
        name, needed, there = "main memory", machine.devices * found.host_bytes, machine.host_memory or 0.0
    each = " for each process" if machine.devices > 1 else ""
    return f"this training would take {show_bytes(needed)} of {name}, there is {show_bytes(there)}{each}"
