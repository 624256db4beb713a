"""Averages of the weights over the steps of a training (SWA): what is evaluated and kept in place of the last ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from megalabel.recipes.training import AveragingSettings
    from megalabel.training.checkpoint import Checkpoint

__all__ = ["PREFIX", "WeightAverage"]

PREFIX = "average."  # of its tensors in a checkpoint


class WeightAverage:
    """The mean of the weights at evenly spaced steps, from the beginning of an epoch on.

    After every ``every_steps`` steps, counted from the beginning of epoch ``start``, the weights w enter the mean

        m <- m + (w - m) / n,  n = 1, 2, 3, ...

    which is that of all of them so far (stochastic weight averaging, Izmailov et al., UAI 2018; LightXML, Jiang et al.,
    AAAI 2021, section 4.3). Training goes on with w; m is evaluated and saved. Only weights that are trained are
    averaged, in float32; statistics of batches stay those of the last step.

    Args:
        settings: when weights enter; None never averages.
        network: what is trained.

    >>> from megalabel.recipes.training import AveragingSettings
    >>> layer = torch.nn.Linear(1, 1, bias=False)
    >>> average = WeightAverage(AveragingSettings(start=1, every_steps=1), layer)
    >>> for epoch, value in ((0, 1.0), (1, 2.0), (1, 4.0)):
    ...     _ = layer.weight.data.fill_(value)
    ...     average.after_step(epoch)
    >>> with average.applied():
    ...     layer.weight.item()
    3.0
    >>> layer.weight.item()
    4.0
    """

    def __init__(self, settings: AveragingSettings | None, network: torch.nn.Module) -> None:
        self.settings, self.network = settings, network
        self.steps = 0  # since the beginning of epoch `start`
        self.count = 0  # weights in the mean
        self.means: dict[str, Tensor] = {}

    @torch.no_grad()
    def after_step(self, epoch: int) -> None:
        """Let the weights enter the mean if it is time; ``epoch`` is that of the step, counted from 0."""
        if self.settings is None or epoch < self.settings.start:
            return
        self.steps += 1
        if self.steps % self.settings.every_steps:
            return
        self.count += 1
        for name, value in self._trained():
            if self.count == 1:
                self.means[name] = value.detach().to(torch.float32, copy=True)
            else:
                self.means[name].add_((value.detach().float() - self.means[name]) / self.count)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Let the network have the mean of its weights meanwhile; before there is one, its own."""
        if not self.count:
            yield
            return
        own = {name: value.detach().clone() for name, value in self._trained()}
        self.apply()
        try:
            yield
        finally:
            self._set(own)

    def apply(self) -> None:
        """Give the network the mean of its weights, for good; before there is one, it keeps its own."""
        if self.count:
            self._set(self.means)

    def state(self) -> dict[str, int]:
        """Return how far the average is."""
        return {"steps": self.steps, "count": self.count}

    def restore(self, checkpoint: Checkpoint, rows: Mapping[str, range]) -> None:
        """Continue from what a checkpoint holds; ``rows`` are those of this process in weights that are sharded."""
        state: Mapping[str, Any] = checkpoint.state.get("average", {})
        self.steps, self.count = state.get("steps", 0), state.get("count", 0)
        for name, value in self._trained() if self.count else ():
            part = checkpoint.part(f"{PREFIX}{name}", rows.get(name))
            self.means[name] = part.to(value.device, torch.float32, copy=True)

    def _trained(self) -> list[tuple[str, Tensor]]:
        return [(name, value) for name, value in self.network.named_parameters() if value.requires_grad]

    @torch.no_grad()
    def _set(self, values: Mapping[str, Tensor]) -> None:
        for name, value in self._trained():
            value.copy_(values[name])
