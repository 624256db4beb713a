"""Parts of memory, as encoders, heads and the plan count them."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FLOAT", "Part", "in_main_memory", "tensor"]

FLOAT = 4  # bytes
_HEAP = 32 << 20  # bytes; the C library keeps smaller blocks that are freed, larger ones go back to the system


@dataclass(frozen=True)
class Part:
    """One part of the memory."""

    name: str
    bytes: float
    how: str = ""  # its size as a product, for display
    host: bool = False  # in main memory even if the network is on a GPU
    pieces: float = 1  # number of equal blocks that it consists of

    @property
    def small(self) -> bool:
        """Whether the C library keeps its blocks after they are freed."""
        return self.bytes / max(1.0, self.pieces) < _HEAP


def tensor(name: str, rows: float, width: float, *, times: float = 1, host: bool = False, note: str = "") -> Part:
    """Return ``times`` float32 tensors [rows, width] as one part that shows its product.

    >>> tensor("label vectors", 1_000, 384, times=2).how
    '2 x 1,000 x 384 x 4 B'
    """
    count = f"{times:g} x " if times != 1 else ""
    how = f"{count}{rows:,.0f} x {width:,.0f} x {FLOAT} B{f', {note}' if note else ''}"
    return Part(name, times * rows * width * FLOAT, how, host, times)


def in_main_memory(name: str, count: float, each: float, *, pieces: float = 1) -> Part:
    """Return a part of ``count`` items of ``each`` bytes in main memory.

    >>> in_main_memory("clusters", 1_000, 8).how
    '1,000 x 8 B'
    """
    return Part(name, count * each, f"{count:,.0f} x {each:,.0f} B", host=True, pieces=pieces)
