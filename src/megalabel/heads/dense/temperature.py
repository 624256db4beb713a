"""What scores are divided by: a number, given or learnt, that heads may share."""

from __future__ import annotations

import math
from typing import Literal, Self

import torch
from pydantic import model_validator
from torch import Tensor, nn

from megalabel.settings import PositiveFloat, Settings

__all__ = ["Temperature", "TemperatureSettings"]


class TemperatureSettings(Settings):
    """Scores are divided by the temperature; heads with the same ``share`` have a common one."""

    value: PositiveFloat = 0.05
    learn: bool = False
    learn_as: Literal["log", "inverse"] = "log"  # which number the optimiser changes: log t, or 1 / t
    share: str | None = None

    @model_validator(mode="after")
    def _check_share(self) -> Self:
        self.require(self.learn, "learn_as", "learn is false")
        self.require(self.learn, "share", "learn is false, so heads with the same value need not share it")
        return self


class Temperature(nn.Module):
    """A positive number, fixed or learnt, with a lower bound so that scores cannot explode.

    DEXML keeps 0.05 fixed. CLIP learns log(1 / t), which moves like log t (``learn_as="log"``). UniDEC (Kharbanda et
    al. 2024) learns 1 / t itself, one number for both of its heads that starts at 18 (``learn_as="inverse"``): with
    the learning rate of a head, an optimiser like AdamW changes it far less. As in CLIP, the learnt scale is
    bounded: the temperature never falls below ``minimum``; 1 / t never falls below it either.

    >>> round(Temperature(0.05)().item(), 4)
    0.05
    >>> learnt = Temperature(0.05, learn=True, learn_as="inverse")
    >>> round(learnt().item(), 4), round(learnt.inverse_value.item(), 4)
    (0.05, 20.0)
    """

    def __init__(
        self, value: float, *, learn: bool = False, learn_as: Literal["log", "inverse"] = "log", minimum: float = 0.01
    ) -> None:
        super().__init__()
        self.value, self.learn, self.minimum = value, learn, minimum
        self.register_parameter("inverse_value", None)
        self.inverse_value: nn.Parameter | None
        self.log_value: Tensor
        if learn and learn_as == "inverse":
            self.inverse_value = nn.Parameter(torch.tensor(1 / value))
            return
        start = torch.tensor(math.log(value))
        if learn:
            self.log_value = nn.Parameter(start)
        else:
            self.register_buffer("log_value", start, persistent=False)

    @classmethod
    def of(cls, settings: TemperatureSettings) -> Temperature:
        """Return the temperature with these settings."""
        return cls(settings.value, learn=settings.learn, learn_as=settings.learn_as)

    def forward(self) -> Tensor:
        """Return the temperature, a scalar tensor."""
        if self.inverse_value is not None:
            return 1 / self.inverse_value.clamp(self.minimum, 1 / self.minimum)
        return self.log_value.clamp(min=math.log(self.minimum)).exp()
