"""Split the inputs of an encoder by rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor

from megalabel.errors import DataError
from megalabel.types import Tokens

__all__ = ["Inputs", "count_rows", "cut", "tensors_in"]

Inputs = tuple[tuple[Any, ...], dict[str, Any]]  # positional and keyword arguments


def count_rows(inputs: Inputs) -> int | None:
    """Return the number of rows, which all row-like inputs share; None if there are none."""
    lengths = {name: len(value) for name, value in _entries(inputs) if _is_rows(value)}
    if len(set(lengths.values())) > 1:
        counts = ", ".join(f"{name} has {rows}" for name, rows in lengths.items())
        raise DataError(
            f"inputs disagree on the number of rows: {counts}",
            remedy="bind what does not belong to rows with functools.partial",
        )
    return next(iter(lengths.values()), None)


def tensors_in(inputs: Inputs) -> Iterator[Tensor]:
    """Yield the tensors among the inputs, including those inside lists."""
    for _, value in _entries(inputs):
        entries = value if isinstance(value, list | tuple) else [value]
        yield from (entry for entry in entries if isinstance(entry, Tensor))


def cut(inputs: Inputs, begin: int, end: int) -> Inputs:
    """Return rows begin to end of every input; tensors are copied, as an encoder may write into its input."""

    def part(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: part(entry) for key, entry in value.items()}
        if isinstance(value, Tokens):
            return value.cut(begin, end)
        if isinstance(value, list | tuple):
            return type(value)(_copy(entry) for entry in value[begin:end])
        return _copy(value[begin:end]) if _is_rows(value) else value

    args, kwargs = inputs
    return tuple(part(value) for value in args), {key: part(value) for key, value in kwargs.items()}


def _copy(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) else value


def _is_rows(value: object) -> bool:
    """Return whether a value holds one entry per row: a tensor, an array, a list, a tuple or tokens."""
    return isinstance(value, list | tuple | Tokens) or (hasattr(value, "shape") and len(value.shape) > 0)


def _entries(inputs: Inputs) -> Iterator[tuple[str, Any]]:
    """Yield every input with a name for messages; mappings value by value."""
    args, kwargs = inputs
    for name, value in [*((f"argument {place}", arg) for place, arg in enumerate(args, 1)), *kwargs.items()]:
        if isinstance(value, Mapping):
            yield from ((f"{name}[{key!r}]", entry) for key, entry in value.items())
        else:
            yield name, value
