"""The state of torch's random generators on the devices an encoder may draw from."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

__all__ = ["RandomState", "devices_of", "random_state", "restore_random_state"]

RandomState = dict[torch.device, Tensor]


def devices_of(encoder: object, tensors: Iterable[Tensor]) -> set[torch.device]:
    """Return the devices of the tensors and of the encoder's parameters.

    The device of a plain function is unknown: the current CUDA device is then included, if
    CUDA is initialised.
    """
    devices = {torch.device("cpu"), *(tensor.device for tensor in tensors)}
    if isinstance(encoder, nn.Module):
        devices.update(parameter.device for parameter in encoder.parameters())
    elif torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        devices.add(torch.device("cuda", torch.cuda.current_device()))
    return devices - {torch.device("meta")}


def random_state(devices: Iterable[torch.device]) -> RandomState:
    """Read the generator of every device."""
    states = {}
    for device in devices:
        if device.type == "cpu":
            states[device] = torch.get_rng_state()
        elif device.type == "mps":
            states[device] = torch.mps.get_rng_state()
        else:
            states[device] = getattr(torch, device.type).get_rng_state(device)
    return states


def restore_random_state(states: RandomState) -> None:
    """Restore the state of every generator."""
    for device, state in states.items():
        if device.type == "cpu":
            torch.set_rng_state(state)
        elif device.type == "mps":
            torch.mps.set_rng_state(state)
        else:
            getattr(torch, device.type).set_rng_state(state, device)
