"""What a plan says: parts of memory, moments, work."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["ONCE", "Memory", "Part", "Work"]

ONCE = ("reading", "clusters of labels", "start")  # moments before the first step; all others come again and again

HEAP = 32 << 20  # bytes; the C library keeps smaller pieces that are given back, larger ones go back to the system


@dataclass(frozen=True)
class Part:
    """One thing that takes memory."""

    name: str
    bytes: float
    how: str = ""  # the product it is
    host: bool = False  # in main memory even where the network is on a GPU
    pieces: float = 1  # of like size that it consists of

    @property
    def small(self) -> bool:
        """Whether its pieces stay with the C library when they are given back."""
        return self.bytes / max(1.0, self.pieces) < HEAP


@dataclass(frozen=True)
class Memory:
    """What one device (and its process) holds: parts that stay, and parts of moments that come and go."""

    held: tuple[Part, ...]
    moments: dict[str, tuple[Part, ...]]
    gpu: bool

    def total(self, moment: str, *, host: bool) -> float:
        """Return the bytes at a moment, on the device or (with a GPU) in main memory; without, both are one."""
        parts = [part for part in (*self.held, *self.moments[moment]) if not self.gpu or part.host == host]
        return sum(part.bytes for part in parts) + (self.kept(moment) if host or not self.gpu else 0.0)

    def kept(self, moment: str) -> float:
        """Return what the C library keeps of earlier moments: small pieces given back are not those of now."""
        small = {name: self._small(parts) for name, parts in self.moments.items()}
        before = list(small)[: list(small).index(moment) + 1] if moment in ONCE else list(small)
        return max(small[name] for name in before) - small[moment]

    def _small(self, parts: tuple[Part, ...]) -> float:
        return sum(part.bytes for part in parts if part.small and (part.host or not self.gpu))

    def peak(self, *, host: bool = False) -> tuple[str, float]:
        """Return the moment with the most, and how much."""
        totals = {name: self.total(name, host=host or not self.gpu) for name in self.moments}
        name = max(totals, key=lambda moment: totals[moment])
        return name, totals[name]


@dataclass(frozen=True)
class Work:
    """Operations and bytes, over all devices."""

    steps: int  # of an epoch
    epochs: int
    encoder: float  # operations of an epoch
    loss: float  # of an epoch: products of queries and labels, and of the heads
    refresh: float  # of an epoch, on average: clusters, negatives
    evaluate: float  # of an epoch, on average
    sent: dict[str, float] = field(default_factory=dict)  # bytes that one device sends in a step, by what

    @property
    def flops(self) -> float:
        """Operations of an epoch."""
        return self.encoder + self.loss + self.refresh + self.evaluate

    def seconds(self, devices: int, flops: float, bandwidth: float | None) -> float:
        """Return the seconds of an epoch on devices that reach so many operations and bytes a second."""
        sending = self.steps * sum(self.sent.values()) / bandwidth if bandwidth and devices > 1 else 0.0
        return self.flops / (devices * flops) + sending
