"""The learning rate as a pure function of the step."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from torch.optim import Optimizer

from megalabel.errors import SettingError, nearest

__all__ = ["Schedule"]

# Progress from the peak (0) to the end (1) -> share of the decay that is done.
DECAYS: dict[str, Callable[[float], float]] = {
    "constant": lambda progress: 0.0,
    "linear": lambda progress: progress,
    "cosine": lambda progress: (1 - math.cos(math.pi * progress)) / 2,
}
ONE_CYCLE, THREE_PHASE = "one_cycle", "three_phase"
KINDS = (*DECAYS, ONE_CYCLE, THREE_PHASE)
_FIRST = 0.1  # share of the base rate at the first step of a cycle
_LAST = {ONE_CYCLE: 1e-5, THREE_PHASE: 1e-3}  # and at the last


@dataclass(frozen=True)
class Schedule:
    """Warm up, then keep the rate or let it decay; steps count from 0.

    The rate of an optimiser at a step is its base rate times :meth:`factor`, with
    w = ``warmup_steps``, T = ``total_steps`` and f = ``final``:

        step < w:   (step + 1) / (w + 1)
        w <= step:  1 - (1 - f) decay(min(1, (step - w) / (T - w)))

    decay(x) is 0 (constant), x (linear) or (1 - cos(pi x)) / 2 (cosine; Loshchilov and
    Hutter, "SGDR", ICLR 2017, equation 5, without restarts). No step has rate zero before
    T.

    ``one_cycle`` rises from a tenth of the base rate at step 0 to the whole at step w - 1, and falls to 1e-5 of it at
    step T - 1, both by the cosine: (1 - c) a + c b from a to b, with c = (1 - cos(pi x)) / 2 and x the share of the
    way (Smith and Topin, "Super-Convergence", 2019; torch's OneCycleLR with div_factor 10 and momentum left alone).

    ``three_phase`` rises alike, keeps the whole rate until ``cooldown_steps`` before the end, and then falls to 1e-3
    of it by the cosine (CascadeXML, Kharbanda et al., NeurIPS 2022).

    The result is multiplied by ``milestone_factor`` for each of the ``milestones`` that the step has
    reached. The only state is the step number, so a resumed run needs nothing else.

    >>> schedule = Schedule("linear", total_steps=6, warmup_steps=2)
    >>> [round(schedule.factor(step), 2) for step in range(7)]
    [0.33, 0.67, 1.0, 0.75, 0.5, 0.25, 0.0]
    >>> halved = Schedule("constant", total_steps=6, milestones=(2, 4))
    >>> [halved.factor(step) for step in range(6)]
    [1.0, 1.0, 0.5, 0.5, 0.25, 0.25]
    >>> cycle = Schedule("one_cycle", total_steps=7, warmup_steps=3)
    >>> [round(cycle.factor(step), 2) for step in range(7)]
    [0.1, 0.55, 1.0, 0.85, 0.5, 0.15, 0.0]
    >>> phases = Schedule("three_phase", total_steps=8, warmup_steps=3, cooldown_steps=2)
    >>> [round(phases.factor(step), 2) for step in range(8)]
    [0.1, 0.55, 1.0, 1.0, 1.0, 1.0, 0.5, 0.0]
    """

    kind: str = "linear"
    total_steps: int = 1
    warmup_steps: int = 0
    cooldown_steps: int = 0  # of three_phase
    final: float = 0.0  # share of the base rate that is left at the end
    milestones: tuple[int, ...] = ()  # steps
    milestone_factor: float = 0.5

    def factor(self, step: int) -> float:
        """Return the factor of the base rate at a step."""
        self._check()
        reached = self.milestone_factor ** sum(step >= milestone for milestone in self.milestones)
        if self.kind in _LAST:
            return reached * self._cycle(step)
        if step < self.warmup_steps:
            return reached * (step + 1) / (self.warmup_steps + 1)
        progress = (step - self.warmup_steps) / max(self.total_steps - self.warmup_steps, 1)
        return reached * (1 - (1 - self.final) * DECAYS[self.kind](min(progress, 1.0)))

    def _cycle(self, step: int) -> float:
        peak = max(self.warmup_steps - 1, 0)
        if step < peak:
            return _FIRST + (1 - _FIRST) * DECAYS["cosine"](step / peak)
        fall = max(peak, self.total_steps - 1 - self.cooldown_steps) if self.kind == THREE_PHASE else peak
        progress = max(step - fall, 0) / max(self.total_steps - 1 - fall, 1)
        return 1 - (1 - _LAST[self.kind]) * DECAYS["cosine"](min(progress, 1.0))

    def apply(self, step: int, optimisers: Iterable[Optimizer]) -> float:
        """Set the rate of every group of every optimiser for this step; return the factor.

        The base rate is the one a group had when it was first seen; it is kept in the
        group as "initial_lr" and so lives in the state of the optimiser.
        """
        factor = self.factor(step)
        for optimiser in optimisers:
            for group in optimiser.param_groups:
                group["lr"] = group.setdefault("initial_lr", group["lr"]) * factor
        return factor

    def _check(self) -> None:
        if self.kind not in KINDS:
            raise SettingError(f"unknown schedule {self.kind!r}", remedy=nearest(self.kind, KINDS))
        if self.kind in _LAST and self.final:
            raise SettingError(f"final is {self.final}, but {self.kind} has an end of its own", remedy="leave it out")
        if not 0 <= self.warmup_steps <= self.total_steps or self.total_steps < 1:
            what = f"a warm-up of {self.warmup_steps} steps in a training of {self.total_steps}"
            raise SettingError(what, remedy="choose a warm-up that fits in: training.warmup_steps, or training.warmup")
        if not 0 <= self.final <= 1:
            raise SettingError(f"final is {self.final}", remedy="give the share of the rate left at the end, 0 to 1")
