"""Compile loops with numba. Importing this module imports numba, so kernel modules are imported on first use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

__all__ = ["compiled", "compiled_sums"]

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """Compile a function on its first call and cache the result on disk if a cache folder is writable.

    It releases the interpreter lock, so threads run in parallel, and it keeps the written order of
    additions: the result is the same bit for bit on every run.

    >>> compiled(lambda numbers: numbers.sum())(__import__("numpy").arange(4))
    6
    """
    return _compile(function, fastmath=False)


def compiled_sums(function: Function) -> Function:
    """Do the same, but let the compiler choose the order of additions once, so that it can vectorise a sum.

    The result is the same on every run on one kind of processor; another may differ in the last bit of a sum.
    """
    return _compile(function, fastmath={"reassoc", "contract"})


def _compile(function: Function, fastmath: Any) -> Function:
    try:
        return cast("Function", njit(nogil=True, cache=True, fastmath=fastmath)(function))
    except RuntimeError:  # neither the package nor the home folder can be written
        return cast("Function", njit(nogil=True, fastmath=fastmath)(function))
