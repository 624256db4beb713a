"""The state of every random generator of a run, as tensors and JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from megalabel.errors import DataError
from megalabel.network._random_state import random_state, restore_random_state

__all__ = ["capture_randomness", "restore_randomness"]

Generators = Mapping[str, np.random.Generator | torch.Generator]

PREFIX = "random."


def capture_randomness(generators: Generators | None = None) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return (tensors, state) that hold torch's own generators and the named ones given.

    Tensors are named "random.<device>" for torch's generators (CPU, every CUDA device in
    use, MPS) and "random.<name>" for a ``torch.Generator`` given; state is JSON-able and
    holds the numpy generators by name. Python's ``random`` is not looked at.
    """
    found = random_state(_devices())
    tensors = {f"{PREFIX}{device}": value.clone() for device, value in found.items()}
    state: dict[str, Any] = {}
    for name, generator in (generators or {}).items():
        if isinstance(generator, torch.Generator):
            tensors[f"{PREFIX}{name}"] = generator.get_state()
        else:
            state[name] = _plain(generator.bit_generator.state)
    return tensors, state


def restore_randomness(
    tensors: Mapping[str, Tensor], state: Mapping[str, Any], generators: Generators | None = None
) -> None:
    """Put torch's generators and the named ones back; ``tensors`` may hold other things too.

    The named generators must be those that were captured. States of devices that this
    machine does not have are passed over.

    >>> generator = np.random.default_rng(7)
    >>> tensors, state = capture_randomness({"sampler": generator})
    >>> drawn = torch.rand(1).item(), generator.random()
    >>> restore_randomness(tensors, state, {"sampler": generator})
    >>> drawn == (torch.rand(1).item(), generator.random())
    True
    """
    devices = {device: tensors.get(f"{PREFIX}{device}") for device in _devices()}
    restore_random_state({device: value.cpu().clone() for device, value in devices.items() if value is not None})
    for name, generator in (generators or {}).items():
        found = tensors.get(f"{PREFIX}{name}") if isinstance(generator, torch.Generator) else state.get(name)
        if found is None:
            raise DataError(f"no saved state for the random generator {name!r}", remedy="start the run again")
        try:
            if isinstance(generator, torch.Generator):
                generator.set_state(found.cpu().clone())
            else:
                generator.bit_generator.state = _arrays(found)
        except (ValueError, TypeError, RuntimeError) as error:
            what = f"the saved state is not one of the random generator {name!r} ({error})"
            raise DataError(what, remedy="start the run again") from error


def _devices() -> list[torch.device]:
    devices = [torch.device("cpu")]
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        devices += [torch.device("cuda", number) for number in range(torch.cuda.device_count())]
    if torch.backends.mps.is_available():
        devices.append(torch.device("mps"))
    return devices


def _plain(value: Any) -> Any:
    """Replace arrays and numpy numbers, which some bit generators hold, by lists and ints."""
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, np.ndarray):
        return {"dtype": str(value.dtype), "values": value.tolist()}
    return value.item() if isinstance(value, np.generic) else value


def _arrays(value: Any) -> Any:
    """Undo :func:`_plain`."""
    if not isinstance(value, dict):
        return value
    if value.keys() == {"dtype", "values"}:
        return np.array(value["values"], dtype=value["dtype"])
    return {key: _arrays(entry) for key, entry in value.items()}
