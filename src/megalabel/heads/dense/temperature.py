"""What scores are divided by: a number, given or learnt, that heads may share."""

from __future__ import annotations

import math
from typing import Self

import torch
from pydantic import model_validator
from torch import Tensor, nn

from megalabel.settings import PositiveFloat, Settings

__all__ = ["Temperature", "TemperatureSettings"]


class TemperatureSettings(Settings):
    """Scores are divided by the temperature; heads with the same ``share`` have a common one."""

    value: PositiveFloat = 0.05
    learn: bool = False
    share: str | None = None

    @model_validator(mode="after")
    def _check_share(self) -> Self:
        self.require(self.learn, "share", "learn is false, so heads with the same value need not share it")
        return self


class Temperature(nn.Module):
    """A positive number, fixed or learnt on a log scale, with a lower bound so that scores cannot explode.

    UniDEC learns one inverse temperature for both of its heads, started at 18 (Kharbanda et al. 2024); DEXML
    keeps 0.05 fixed. As in CLIP, the learnt scale is bounded: the temperature never falls below ``minimum``.

    >>> round(Temperature(0.05)().item(), 4)
    0.05
    """

    def __init__(self, value: float, *, learn: bool = False, minimum: float = 0.01) -> None:
        super().__init__()
        self.value, self.learn, self.minimum = value, learn, minimum
        start = torch.tensor(math.log(value))
        self.log_value: Tensor
        if learn:
            self.log_value = nn.Parameter(start)
        else:
            self.register_buffer("log_value", start, persistent=False)

    @classmethod
    def of(cls, settings: TemperatureSettings) -> Temperature:
        """Return the temperature with these settings."""
        return cls(settings.value, learn=settings.learn)

    def forward(self) -> Tensor:
        """Return the temperature, a scalar tensor."""
        return self.log_value.clamp(min=math.log(self.minimum)).exp()
