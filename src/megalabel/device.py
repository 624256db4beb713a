"""From the name of a device to the device itself."""

from __future__ import annotations

import torch

from megalabel.errors import SettingError

__all__ = ["find_device"]

_REMEDY = "leave it at auto, or choose cpu"


def find_device(name: str) -> torch.device:
    """Return the torch device called ``auto``, ``cpu``, ``cuda``, ``cuda:1`` or ``mps``; a missing device is an error.

    ``auto`` is the first CUDA device if there is one, else the CPU.

    >>> find_device("cpu")
    device(type='cpu')
    """
    if name == "auto":
        return torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    kind, _, number = name.partition(":")
    if name == "cpu":
        return torch.device("cpu")
    if name == "mps":
        if not torch.backends.mps.is_available():
            raise SettingError("there is no device 'mps' on this machine", remedy=_REMEDY)
        return torch.device("mps")
    if kind != "cuda" or (number and not number.isdecimal()) or name.endswith(":"):
        raise SettingError(f"there is no device {name!r}", remedy="choose auto, cpu, cuda, cuda:0, cuda:1, ... or mps")
    if not torch.cuda.is_available():
        why = "this torch was built without CUDA" if torch.version.cuda is None else "torch finds no GPU"
        raise SettingError(f"there is no device {name!r}, {why}", remedy=_REMEDY)
    if int(number or 0) >= torch.cuda.device_count():
        last = torch.cuda.device_count() - 1
        raise SettingError(f"there is no device {name!r}", remedy=f"the last one is cuda:{last}")
    return torch.device("cuda", int(number or 0))
