"""Memory that was freed goes back to the system."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

__all__ = ["trim_memory"]


def trim_memory() -> None:
    """Have the C library return freed memory to the system; does nothing where it cannot.

    glibc keeps pieces of up to 32 MB for later, so that what comes next, in other sizes, is added on top: after
    blocks of scores of all labels, hundreds of megabytes. It takes some milliseconds, and as long again until the
    memory is mapped again: for steps of a second, not for small ones.
    """
    _malloc_trim()(0)


@cache
def _malloc_trim() -> Callable[[int], int]:
    try:
        trim: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError, TypeError):  # another C library, another system
        return lambda kept: 0
    return trim
