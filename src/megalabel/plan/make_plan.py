"""Plan a training: from recipe, data sizes and machine to memory, work and a verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from megalabel.cost import FLOAT
from megalabel.encoders.cost import find_tokenizer
from megalabel.encoders.text_size import TextSize
from megalabel.errors import SettingError, nearest
from megalabel.index.choose_index import code_bytes
from megalabel.index.cost import search_cost
from megalabel.plan.changes import Change, change_recipe, changes_that_help, dim_settings, fits, remedy
from megalabel.plan.machine import BANDWIDTH, Machine, gpu_memory, has_gpu, main_memory
from megalabel.plan.memory import largest_stage
from megalabel.plan.numbers import show_bytes
from megalabel.plan.published import PublishedCost, nearest_published
from megalabel.plan.sizes import Sizes
from megalabel.plan.work import work
from megalabel.plan.workload import Workload
from megalabel.recipes.load_recipe import load_recipe

if TYPE_CHECKING:
    from megalabel.cost import Part
    from megalabel.data.dataset import Dataset
    from megalabel.plan.memory import Memory
    from megalabel.plan.work import Work
    from megalabel.recipes.schema import Recipe

__all__ = ["Plan", "plan", "plan_workload"]

DEVICES = ("auto", "cpu", "cuda", "mps")


@dataclass(frozen=True)
class Plan:
    """Memory and time of a training before it starts; see :func:`megalabel.plan.plan`."""

    whole: Workload = field(repr=False)  # the recipe with all its stages
    workload: Workload = field(repr=False)  # the stage that takes the most memory
    machine: Machine
    memory: Memory = field(repr=False)  # of one device and its process, in that stage
    work: Work  # of all stages

    @property
    def recipe(self) -> str:
        """The name of the recipe."""
        return self.whole.recipe.name

    @property
    def stage(self) -> str:
        """The stage that takes the most memory; empty for a recipe without stages."""
        return self.workload.stage

    @property
    def sizes(self) -> Sizes:
        """The data that was planned for."""
        return self.workload.sizes

    @property
    def device_bytes(self) -> float:
        """The most that one device holds; on a CPU, all of it."""
        return self.memory.peak()[1]

    @property
    def host_bytes(self) -> float:
        """The most main memory that the process of one device holds."""
        return self.memory.peak(host=True)[1]

    @property
    def moment(self) -> str:
        """When a device holds the most."""
        return self.memory.peak()[0]

    @property
    def parts(self) -> tuple[tuple[str, Part], ...]:
        """What a device and its process hold at the peak: (always or the moment, part)."""
        moment = self.moment
        held = [("always", part) for part in self.memory.held]
        current = [(moment, part) for part in self.memory.moments[moment]]
        if self.machine.gpu:
            other = self.memory.peak(host=True)[0]
            current = [(when, part) for when, part in current if not part.host]
            current += [(other, part) for part in self.memory.moments[other] if part.host]
        return (*held, *current)

    @property
    def fits(self) -> bool:
        """Whether it fits into what is known of the machine."""
        return fits(self.memory, self.machine)

    @cached_property
    def changes(self) -> list[Change]:
        """What to change if it does not fit, the mildest first."""
        return [] if self.fits else self.changes_with()

    def changes_with(self, *, more_devices: bool = True) -> list[Change]:
        """Return the changes that make it fit, with or without more devices."""
        return changes_that_help(self.whole, self.machine, more_devices=more_devices)

    @property
    def verdict(self) -> str:
        """One line: whether it fits, and what to change if it does not."""
        machine = self.machine
        each = f"each of {machine.devices:,} {machine.kind}s" if machine.devices > 1 else f"one {machine.kind}"
        if machine.memory is None:
            return f"takes {show_bytes(self.device_bytes)} on {each}"
        room = f"{show_bytes(self.device_bytes)} of {show_bytes(machine.memory)} on {each}"
        if self.fits:
            return f"fits: {room}, {self.device_bytes / machine.memory:.0%}"
        if self.device_bytes <= machine.memory and machine.host_memory is not None:
            need = machine.devices * self.host_bytes
            room = f"{show_bytes(need)} of {show_bytes(machine.host_memory)} of main memory, for all processes"
        return f"does not fit: {room}; {remedy(self.changes)}"

    @property
    def index_bytes(self) -> dict[str, float]:
        """Memory of search after training: exact, and with codes in place of vectors, which may stay on disk."""
        labels, dim = self.sizes.labels, self.workload.dim
        codes = search_cost("ivf", labels, dim, pq=code_bytes(dim))
        return {"exact": labels * dim * FLOAT, "pq": labels * codes.label_bytes}

    @property
    def seconds(self) -> float | None:
        """Seconds of an epoch at the given speed, for arithmetic and exchange alone."""
        if self.machine.flops is None:
            return None
        return self.work.seconds(self.machine.devices, self.machine.flops, self.machine.bandwidth)

    @property
    def total_steps(self) -> int:
        """Steps of all epochs and stages; a refit is not counted."""
        return sum(stage.total_steps for stage in self.whole.stages())

    @property
    def total_texts(self) -> int:
        """Texts that these steps encode."""
        return sum(
            stage.total_steps * (encoder.queries + encoder.labels)
            for stage in self.whole.stages()
            for encoder in stage.encoders
        )

    @cached_property
    def published(self) -> list[PublishedCost]:
        """Published systems on the set whose number of labels is nearest."""
        return nearest_published(self.sizes.labels)

    def document(self) -> dict[str, Any]:
        """Return the plan for JSON; sizes in bytes, times in seconds."""
        memory, work, load = self.memory, self.work, self.workload
        sides = {"device": False, "host": True} if self.machine.gpu else {"device": False}
        peaks = {side: memory.peak(host=host) for side, host in sides.items()}
        return {
            "recipe": self.recipe,
            "stage": self.stage,
            "sizes": {**asdict(self.sizes), "rows": load.rows, "batch": load.batch, "pool": load.pool},
            "machine": asdict(self.machine),
            "fits": self.fits,
            "verdict": self.verdict,
            "peak": {side: {"moment": moment, "bytes": size} for side, (moment, size) in peaks.items()},
            "moments": {
                name: {side: memory.total(name, host=host or not memory.gpu) for side, host in sides.items()}
                for name in memory.moments
            },
            "parts": [
                {"name": part.name, "bytes": part.bytes, "when": when, "how": part.how,
                 "where": "host" if part.host else "device"}
                for when, part in self.parts
            ],
            "work": {**asdict(work), "flops": work.flops, "sent_in_a_step": sum(work.sent.values())},
            "seconds": self.seconds,
            "index": self.index_bytes,
            "changes": [asdict(change) for change in self.changes],
            "published": [line.document() for line in self.published],
        }  # fmt: skip


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
    """Estimate memory and time of a training before it starts.

    Memory is what one device holds, part by part, at the moment it holds the most; of several stages, in the stage
    that holds the most. With several devices each has its own labels and its share of every batch, and the encoders
    are whole on all of them. Time is arithmetic at the given speed, and what goes between devices.

    Args:
        recipe: a name (see ``megalabel recipes``), a YAML file, or a recipe.
        points: of the training set; by default those of ``data``.
        labels: of the training set; by default those of ``data``.
        data: a data set to read sizes from.
        labels_per_point: mean number of labels per point; by default that of ``data``, or 5.
        query_tokens: mean tokens per text; by default those of ``data``, or 12.
        label_tokens: mean tokens per label text; by default those of ``data``, or 12.
        dim: size of label vectors, in place of the recipe's.
        batch: queries per step over all devices, in place of the recipe's.
        devices: that share labels and batch.
        memory: bytes of one device; by default that of this machine.
        host_memory: bytes of main memory beside GPUs, for all processes; not checked by default.
        device: cpu or cuda, in place of the recipe's; auto is what this machine has.
        flops: operations per second that one device reaches; without it, there is no time.
        bandwidth: bytes per second that one device sends; 10 GB/s by default.
        changes: ``key=value`` changes to the recipe, as on the command line.

    >>> result = plan("unidec-cpu", points=100_000, labels=50_000, memory=8e9)
    >>> result.fits, result.workload.pool <= 1024 * 6
    (True, True)
    """
    loaded = load_recipe(recipe, changes) if isinstance(recipe, str) else recipe
    settings: dict[str, Any] = {} if dim is None else dim_settings(loaded, _positive("dim", dim))
    if batch is not None:
        settings["batching.batch_size"] = _positive("batch", batch)
    loaded = change_recipe(loaded, settings) if settings else loaded
    sizes = _sizes(loaded, data, points, labels, labels_per_point, query_tokens, label_tokens)
    if batch is not None and batch > sizes.points:
        raise SettingError(f"batch {batch:,} is larger than the {sizes.points:,} points", remedy="give a smaller one")
    gpu = _on_gpu(loaded.training.device if device is None else device)
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
    return plan_workload(Workload(loaded, sizes, devices, gpu), machine)


def plan_workload(workload: Workload, machine: Machine) -> Plan:
    """Return the plan of a recipe with all its stages."""
    stage, memory = largest_stage(workload)
    return Plan(workload, stage, machine, memory, work(workload))


def _on_gpu(name: str) -> bool:
    """Return whether a device has memory of its own; that of Apple's GPUs is main memory."""
    kind = name.partition(":")[0]
    if kind not in DEVICES:
        raise SettingError(f"there is no device {name!r}", remedy=nearest(name, DEVICES))
    return has_gpu() if kind == "auto" else kind == "cuda"


def _sizes(
    recipe: Recipe,
    data: Dataset | None,
    points: int | None,
    labels: int | None,
    labels_per_point: float | None,
    query_tokens: float | None,
    label_tokens: float | None,
) -> Sizes:
    given: dict[str, Any] = {"points": points, "labels": labels, "labels_per_point": labels_per_point}
    for name, tokens in (("query", query_tokens), ("label", label_tokens)):
        given[name] = None if tokens is None else TextSize.of_tokens(_positive(f"{name}_tokens", tokens))
    given = {name: value for name, value in given.items() if value is not None}
    if data is not None:
        tokenizer = None if recipe.encoder.kind == "bag" else find_tokenizer(recipe.encoder)
        return replace(Sizes.of(data, tokenizer), **given)
    if points is None or labels is None:
        missing = " and ".join(name for name in ("points", "labels") if name not in given)
        raise SettingError(f"the number of {missing} is not given", remedy="give points and labels, or a data set")
    return Sizes(**{"labels_per_point": min(5.0, labels), **given})


def _positive(name: str, value: Any) -> Any:
    if not value > 0:
        raise SettingError(f"{name} is {value:g}", remedy="it must be above 0")
    return value
