"""Loops in machine code. Importing this loads numba: kernels do, and are themselves imported on first use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

__all__ = ["compiled"]

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """Compile a function on its first call and keep the result on disk, where there is a place to keep it.

    It runs without the lock of the interpreter, so that threads run beside each other, and
    adds up in the order it is written in: the same bits on every run.

    >>> compiled(lambda numbers: numbers.sum())(__import__("numpy").arange(4))
    6
    """
    try:
        return cast("Function", njit(nogil=True, cache=True)(function))
    except RuntimeError:  # neither the package nor the home folder can be written
        return cast("Function", njit(nogil=True)(function))
