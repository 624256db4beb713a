"""Equal budgets: how many epochs of a recipe fit into so many minutes of processor time."""

from __future__ import annotations

import json
import resource
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True)
class PhaseTime:
    """Seconds of one stage: its steps with mining and clustering, and its evaluations on validation rows."""

    training: float
    evaluation: float


def phase_times(log: Sequence[Mapping[str, Any]]) -> dict[str, PhaseTime]:
    """Return the seconds of each phase of a run, from the lines of its metrics.jsonl.

    Every line has the seconds since its phase began. What lies between the last step of an epoch and its validation
    line is evaluation; all the rest is training.

    >>> steps = [{"phase": "a", "seconds": 2.0, "loss": 1.0}, {"phase": "a", "seconds": 3.0, "val": {}},
    ...          {"phase": "a", "seconds": 5.0, "loss": 1.0}, {"phase": "a", "seconds": 5.5, "val": {}}]
    >>> phase_times(steps)
    {'a': PhaseTime(training=4.0, evaluation=1.5)}
    """
    times: dict[str, PhaseTime] = {}
    last: dict[str, float] = {}
    for line in log:
        phase, spent = line["phase"], line["seconds"] - last.get(line["phase"], 0.0)
        last[phase] = line["seconds"]
        known = times.get(phase, PhaseTime(0.0, 0.0))
        of_evaluation = spent if "val" in line else 0.0
        times[phase] = PhaseTime(known.training + spent - of_evaluation, known.evaluation + of_evaluation)
    return times


def epochs_within(budget: float, planned: Mapping[str, int], seconds: Mapping[str, float]) -> dict[str, int]:
    """Return the epochs of each stage: those of the recipe, or fewer in its proportions, if they take too long.

    Args:
        budget: seconds that all stages may take together.
        planned: epochs of the recipe, by stage.
        seconds: what one epoch takes, by stage.

    >>> epochs_within(50, {"siamese": 8, "extreme": 4}, {"siamese": 10.0, "extreme": 5.0})
    {'siamese': 4, 'extreme': 2}
    >>> epochs_within(300, {"siamese": 8, "extreme": 4}, {"siamese": 10.0, "extreme": 5.0})
    {'siamese': 8, 'extreme': 4}
    >>> epochs_within(300, {"main": 5}, {"main": 200.0})
    {'main': 1}
    """
    total = sum(planned[name] * seconds[name] for name in planned)
    factor = min(1.0, budget / total)
    return {name: max(1, int(epochs * factor + 1e-9)) for name, epochs in planned.items()}


@dataclass(frozen=True)
class Training:
    """A finished run: its model, the lines of its metrics.jsonl, what it took."""

    model: Any
    log: list[dict[str, Any]]
    seconds: float
    cpu_seconds: float  # steadier than the clock on a busy machine


def train(request: Mapping[str, Any], data: Any, changes: Sequence[str]) -> Training:
    """Train the recipe of a request with these changes, from the run it begins with if it names one."""
    import megalabel as ml

    with tempfile.TemporaryDirectory() as folder:
        clock, cpu = time.perf_counter(), _cpu_seconds()
        if first := request.get("after"):
            before = Path(folder) / "first"
            ml.train(first["recipe"], data, before, changes=first["changes"], seed=request["seed"])
            changes = [*changes, f"init_from={before}"]
        model = ml.train(request["recipe"], data, Path(folder) / "run", changes=changes, seed=request["seed"])
        return Training(model, read_log(Path(folder) / "run"), time.perf_counter() - clock, _cpu_seconds() - cpu)


def train_within(request: Mapping[str, Any], data: Any) -> tuple[Training, dict[str, int]]:
    """Train for as many epochs as fit into ``request["cpu_minutes"]``; return the run and its epochs by stage.

    One epoch of each stage is run first, which is the run itself if no more fit; with ``request["trial_share"]``, over
    that share of the train rows only, where one epoch is long. The rhythm of mining, clusters that
    grow, epochs in which a head does not train the encoder, the start of averages and steps of the learning rate keep
    their places relative to the number of epochs.
    """
    from megalabel.recipes.load_recipe import load_recipe

    recipe = load_recipe(request["recipe"], request["changes"])
    planned = {stage.name: staged.training.epochs for stage, staged in recipe.stage_recipes()}
    once = [*request["changes"], *_changes(recipe, dict.fromkeys(planned, 1)), "training.refit=false"]
    part = request.get("trial_share", 1.0)
    first = train(request, data if part == 1.0 else _share_of(data, part), once)
    share = min(1.0, first.cpu_seconds / first.seconds) / part  # of one processor, for all rows
    seconds = {name.removeprefix("select-"): share * each.training for name, each in phase_times(first.log).items()}
    seconds = {name: seconds.get(name, next(iter(seconds.values()))) for name in planned}
    epochs = epochs_within(60 * request["cpu_minutes"], planned, seconds)
    changes = [*request["changes"], *_changes(recipe, epochs)]
    if part == 1.0 and load_recipe(request["recipe"], changes) == load_recipe(request["recipe"], once):
        return first, epochs
    return train(request, data, changes), epochs


def _share_of(data: Any, share: float) -> Any:
    """Return the data with train rows at even distances."""
    rows = range(0, len(data.train), round(1 / share))
    return data.replace(train=data.train.rows(np.array(rows)))


def read_log(run: Path) -> list[dict[str, Any]]:
    """Return the lines of a run's metrics.jsonl."""
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


def _changes(recipe: Any, epochs: Mapping[str, int]) -> list[str]:
    from megalabel.recipes.effects import mines_once

    changes = []
    for stage, staged in recipe.stage_recipes():
        at, place = epochs[stage.name], f"stages.{stage.name}." if recipe.stages else ""
        scale = at / staged.training.epochs
        changes.append(f"{place}training.epochs={at}")
        order, refresh = staged.batching.order, staged.batching.refresh
        if getattr(order, "double_at", ()):
            doubled = sorted({max(1, round(epoch * scale)) for epoch in order.double_at})
            changes.append(f"{place}batching.order.double_at={[epoch for epoch in doubled if epoch < at]}")
        again = (staged.batching.clusters or staged.batching.mines) and not mines_once(staged)
        if again and refresh.every_steps is None:
            every = max(1, round(refresh.every * scale))
            start = min(at - 1, round(refresh.start * scale))
            changes.append(f"{place}batching.refresh={{start: {start}, every: {every}}}")
        for name, head in staged.dense_heads.items():
            if head.detach_epochs and name in recipe.heads:
                changes.append(f"heads.{name}.detach_epochs={min(at, round(head.detach_epochs * scale))}")
        if (averaging := staged.training.averaging) is not None:
            own = place if "averaging" in stage.training else ""
            changes.append(f"{own}training.averaging.start={min(at - 1, round(averaging.start * scale))}")
        if staged.training.milestones:
            steps = sorted({max(1, round(epoch * scale)) for epoch in staged.training.milestones})
            changes.append(f"{place}training.milestones={[epoch for epoch in steps if epoch < at]}")
    return changes


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
