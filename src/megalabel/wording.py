"""Small words of messages."""

from __future__ import annotations

__all__ = ["counted"]


def counted(count: int, one: str, many: str | None = None) -> str:
    """Return a number with its noun, in the singular for 1; the plural adds an s if it is not given.

    >>> counted(1, "label"), counted(2_000, "label"), counted(0, "entry", "entries")
    ('1 label', '2,000 labels', '0 entries')
    """
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"
