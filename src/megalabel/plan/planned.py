"""The plan itself, in numbers, in one line and as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from megalabel.plan.changes import Change, changes_that_help, fits, remedy
from megalabel.plan.moments import memory
from megalabel.plan.numbers import show_bytes
from megalabel.plan.published import PublishedCost, nearest_published
from megalabel.plan.tensor import FLOAT

if TYPE_CHECKING:
    from megalabel.plan.case import Case
    from megalabel.plan.machine import Machine
    from megalabel.plan.result import Memory, Part, Work
    from megalabel.plan.sizes import Sizes

__all__ = ["Plan"]

_PER_BYTE = 8  # numbers of a vector for each byte of a code, as `megalabel index` chooses them


@dataclass(frozen=True)
class Plan:
    """Memory and time of a training before it starts; see :func:`megalabel.plan.plan`."""

    case: Case = field(repr=False)
    machine: Machine
    memory: Memory = field(repr=False)  # of one device and its process, at the stage that takes the most
    work: Work
    stage: str = ""  # whose memory it is, where the recipe has several
    clustered: int | None = None  # labels that this stage has grouped

    @property
    def recipe(self) -> str:
        """The name of the recipe."""
        return self.case.recipe.name

    @property
    def sizes(self) -> Sizes:
        """The data that was planned for."""
        return self.case.sizes

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
        """What a device and its process hold at the most: (always or the moment, part)."""
        moment = self.moment
        stay = [("always", part) for part in self.memory.held]
        come = [(moment, part) for part in self.memory.moments[moment]]
        if self.machine.gpu:
            other = self.memory.peak(host=True)[0]
            come = [(when, part) for when, part in come if not part.host]
            come += [(other, part) for part in self.memory.moments[other] if part.host]
        return (*stay, *come)

    @property
    def fits(self) -> bool:
        """Whether it fits into what is known of the machine."""
        return fits(self.memory, self.machine)

    @cached_property
    def changes(self) -> list[Change]:
        """What to change where it does not fit, the mildest first."""
        return [] if self.fits else self.changes_with()

    def changes_with(self, *, more_devices: bool = True) -> list[Change]:
        """Return the changes that are enough to make it fit, with or without more devices."""
        measure = partial(memory, clustered=self.clustered)
        return changes_that_help(self.case, self.machine, measure, more_devices=more_devices)

    @property
    def verdict(self) -> str:
        """One line: whether it fits, and what to change where it does not."""
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
        """Memory of search when trained: exact, and with codes in place of vectors, which may stay on disk."""
        labels, dim = self.sizes.labels, self.case.total_dim
        return {"exact": labels * dim * FLOAT, "pq": labels * (max(1, dim // _PER_BYTE) + 8.0)}

    @property
    def seconds(self) -> float | None:
        """Seconds of an epoch at the speed given, arithmetic and exchange alone."""
        if self.machine.flops is None:
            return None
        return self.work.seconds(self.machine.devices, self.machine.flops, self.machine.bandwidth)

    @cached_property
    def published(self) -> list[PublishedCost]:
        """Published systems on the set whose number of labels is nearest."""
        return nearest_published(self.sizes.labels)

    def document(self) -> dict[str, Any]:
        """Return all of it, ready for JSON; sizes in bytes, times in seconds."""
        memory, work = self.memory, self.work
        sides = {"device": False, "host": True} if self.machine.gpu else {"device": False}
        peaks = {side: memory.peak(host=host) for side, host in sides.items()}
        return {
            "recipe": self.recipe,
            "stage": self.stage,
            "sizes": {**asdict(self.sizes), "rows": self.case.rows, "batch": self.case.batch, "pool": self.case.pool},
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
