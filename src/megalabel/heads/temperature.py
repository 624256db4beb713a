"""The temperature scores are divided by: fixed or learnt, one head's own or shared."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

__all__ = ["Temperature"]


class Temperature(nn.Module):
    """A positive number, learnt on a log scale if asked to, kept within bounds that cannot blow up.

    UniDEC learns one inverse temperature for both of its heads, started at 18 (Kharbanda et
    al. 2024); DEXML keeps 0.05 fixed. CLIP's habit of bounding the learnt scale is followed:
    the temperature never falls below ``least``.

    >>> round(Temperature(0.05)().item(), 4)
    0.05
    """

    def __init__(self, value: float, *, learn: bool = False, least: float = 0.01) -> None:
        super().__init__()
        self.value, self.learn, self.least = value, learn, least
        start = torch.tensor(math.log(value))
        self.log_value: Tensor
        if learn:
            self.log_value = nn.Parameter(start)
        else:
            self.register_buffer("log_value", start, persistent=False)

    def forward(self) -> Tensor:
        """Return the temperature, a scalar tensor."""
        return self.log_value.clamp(min=math.log(self.least)).exp()
