"""Plan a training: from recipe, data sizes and machine to memory, work and a verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from megalabel.errors import SettingError, nearest
from megalabel.plan.case import Case
from megalabel.plan.changes import changed, dim_settings
from megalabel.plan.encoder_size import find_tokenizer
from megalabel.plan.machine import BANDWIDTH, Machine, gpu_memory, has_gpu, main_memory
from megalabel.plan.moments import memory as memory_of
from megalabel.plan.planned import Plan
from megalabel.plan.result import Work
from megalabel.plan.sizes import Sizes, TextSize
from megalabel.plan.work import work
from megalabel.recipes.load_recipe import load_recipe

if TYPE_CHECKING:
    from megalabel.data.dataset import Dataset
    from megalabel.recipes.schema import Recipe

__all__ = ["plan", "plan_case"]

DEVICES = ("auto", "cpu", "cuda", "mps")


def plan(
    recipe: str | Recipe,
    *,
    points: int | None = None,
    labels: int | None = None,
    data: Dataset | None = None,
    labels_per_point: float | None = None,
    query_tokens: float | None = None,
    label_tokens: float | None = None,
    dim: int | None = None,
    batch: int | None = None,
    devices: int = 1,
    memory: float | None = None,
    host_memory: float | None = None,
    device: str | None = None,
    flops: float | None = None,
    bandwidth: float | None = None,
    changes: Sequence[str] = (),
) -> Plan:
    """Tell memory and time of a training before it starts, without loading torch.

    Memory is what one device holds, part by part, at the moment when it holds the most; with
    several devices each has its own labels and its share of every batch, and the encoder is whole on
    all of them. Time is arithmetic at the speed given, and what goes between devices.

    Args:
        recipe: a name (see ``megalabel recipes``), a YAML file, or a recipe.
        points: of the training set; those of ``data`` where that is given.
        labels: of the training set; those of ``data`` where that is given.
        data: a data set to read sizes from.
        labels_per_point: mean number of labels of a point, 5 unless ``data`` tells.
        query_tokens: mean tokens of a text, 12 unless ``data`` tells.
        label_tokens: mean tokens of a label text, 12 unless ``data`` tells.
        dim: size of label vectors, in place of the recipe's.
        batch: queries of a step over all devices, in place of the recipe's.
        devices: that share labels and batch.
        memory: bytes of one device; by default that of this machine.
        host_memory: bytes of main memory beside GPUs, for all processes; not checked by default.
        device: cpu or cuda, in place of the recipe's; auto is what this machine has.
        flops: operations a second that one device reaches; without, there is no time.
        bandwidth: bytes a second that one device sends; 10 GB/s by default.
        changes: ``key=value`` changes to the recipe, as on the command line.

    >>> found = plan("unidec-cpu", points=100_000, labels=50_000, memory=8e9)
    >>> found.fits, found.case.pool <= 1024 * 6
    (True, True)
    """
    wanted = load_recipe(recipe, changes) if isinstance(recipe, str) else recipe
    settings: dict[str, Any] = {} if dim is None else dim_settings(wanted, _positive("dim", dim))
    if batch is not None:
        settings["batching.batch_size"] = _positive("batch", batch)
    wanted = changed(wanted, settings) if settings else wanted
    sizes = _sizes(wanted, data, points, labels, labels_per_point, query_tokens, label_tokens)
    if batch is not None and batch > sizes.points:
        raise SettingError(f"batch {batch:,} is larger than the {sizes.points:,} points", remedy="give a smaller one")
    gpu = _on_gpu(wanted.training.device if device is None else device)
    for what, value in (("memory", memory), ("host_memory", host_memory), ("flops", flops), ("bandwidth", bandwidth)):
        if value is not None and not value > 0:
            raise SettingError(f"{what} is {value:g}", remedy="it must be above 0")
    machine = Machine(
        devices=devices,
        gpu=gpu,
        memory=memory if memory is not None else gpu_memory() if gpu else main_memory(),
        host_memory=host_memory,
        flops=flops,
        bandwidth=BANDWIDTH if bandwidth is None else bandwidth,
    )
    return plan_case(Case(wanted, sizes, devices, gpu), machine)


def _on_gpu(name: str) -> bool:
    """Tell whether a device has memory of its own; that of Apple's GPUs is main memory."""
    kind = name.partition(":")[0]
    if kind not in DEVICES:
        raise SettingError(f"there is no device {name!r}", remedy=nearest(name, DEVICES))
    return has_gpu() if kind == "auto" else kind == "cuda"


def plan_case(case: Case, machine: Machine) -> Plan:
    """Return the plan; of several stages, memory is that of the one that takes most, and work that of all."""
    plans = []
    for stage, recipe in case.recipe.stage_recipes():
        sizes, clustered = case.sizes, None
        if recipe.space is not None:
            clustered, groups = case.sizes.labels, min(recipe.spaces[recipe.space].size, case.sizes.labels)
            sizes = replace(sizes, labels=groups, labels_per_point=min(sizes.labels_per_point, groups))
        part = replace(case, recipe=recipe, sizes=sizes)
        name = stage.name if recipe.space is not None else ""
        plans.append(Plan(part, machine, memory_of(part, clustered), work(part), name, clustered))
    whole = plans[-1].work
    for earlier in plans[:-1]:
        whole = _added(whole, earlier.work)
    return replace(max(reversed(plans), key=lambda found: found.device_bytes), work=whole)


def _added(whole: Work, stage: Work) -> Work:
    """Return the work of both, spread over the epochs of the first."""
    share = stage.epochs / whole.epochs
    names = ("encoder", "loss", "refresh", "evaluate")
    return replace(whole, **{name: getattr(whole, name) + share * getattr(stage, name) for name in names})


def _sizes(
    recipe: Recipe,
    data: Dataset | None,
    points: int | None,
    labels: int | None,
    labels_per_point: float | None,
    query_tokens: float | None,
    label_tokens: float | None,
) -> Sizes:
    if data is not None:
        tokenizer = None if recipe.encoder.kind == "bag" else find_tokenizer(recipe.encoder)
        found = Sizes.of(data, tokenizer)
    elif points is None or labels is None:
        missing = " and ".join(name for name, value in (("points", points), ("labels", labels)) if value is None)
        raise SettingError(f"the number of {missing} is not given", remedy="give points and labels, or a data set")
    else:
        each = min(5.0, _positive("labels", labels))
        found = Sizes(_positive("points", points), labels, each)
    given: dict[str, Any] = {"points": points, "labels": labels, "labels_per_point": labels_per_point}
    changes = {name: _positive(name, value) for name, value in given.items() if value is not None}
    for name, tokens in (("query", query_tokens), ("label", label_tokens)):
        if tokens is not None:
            changes[name] = TextSize.of_tokens(_positive(f"{name}_tokens", tokens))
    return replace(found, **changes)


def _positive(name: str, value: Any) -> Any:
    if not value > 0:
        raise SettingError(f"{name} is {value:g}", remedy="it must be above 0")
    return value
