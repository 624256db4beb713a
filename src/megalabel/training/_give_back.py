"""Memory that is free goes back to the system."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

__all__ = ["give_back"]


def give_back() -> None:
    """Have the C library return what it keeps of freed memory; nothing happens where it cannot.

    glibc keeps pieces of up to 32 MB for later, so that what comes next, in other sizes, is added on
    top: after blocks of scores of all labels, hundreds of megabytes. It takes some milliseconds, and as
    long again until the memory is there anew: for steps of a second, not for small ones.
    """
    _trim()(0)


@cache
def _trim() -> Callable[[int], int]:
    try:
        found: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError, TypeError):  # another C library, another system
        return lambda kept: 0
    return found
