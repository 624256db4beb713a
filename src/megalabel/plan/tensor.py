"""Parts of memory that are tensors of float32."""

from __future__ import annotations

from megalabel.plan.result import Part

__all__ = ["FLOAT", "tensor"]

FLOAT = 4  # bytes


def tensor(name: str, rows: float, width: float, *, times: float = 1, host: bool = False, note: str = "") -> Part:
    """Return ``times`` tensors [rows, width] of float32 as one part that tells its product.

    >>> tensor("label vectors", 1_000, 384, times=2).how
    '2 x 1,000 x 384 x 4 B'
    """
    many = f"{times:g} x " if times != 1 else ""
    how = f"{many}{rows:,.0f} x {width:,.0f} x {FLOAT} B{f', {note}' if note else ''}"
    return Part(name, times * rows * width * FLOAT, how, host, times)
