"""Training on: a few more epochs over chosen rows, from where a network is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from megalabel.batching import generator
from megalabel.training.display import display
from megalabel.training.phase import Phase, Texts
from megalabel.training.run_log import RunLog

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from megalabel.data.dataset import Dataset
    from megalabel.network.network import Network
    from megalabel.recipes.schema import Recipe

__all__ = ["Further", "train_further"]

_BATCHES = 8  # per epoch, at least: a few rows get smaller batches
_OTHERS = 256  # other rows mixed in, at least


@dataclass(frozen=True)
class Further:
    """How a trained network learns from more rows.

    Args:
        epochs: passes over them.
        rate: the recipe's learning rates are multiplied by this.
        mix: other rows in each epoch, for each of them, so that nothing is forgotten; with 0 there are none.
        seed: random seed.
    """

    epochs: int = 1
    rate: float = 0.1
    mix: float = 2.0
    seed: int = 0

    def rows(self, focus: NDArray[np.int64], total: int) -> NDArray[np.int64]:
        """Return the rows of ``total`` to train on: those in focus and others at random, in order.

        >>> Further(mix=0).rows(np.array([7, 2]), 10).tolist()
        [2, 7]
        >>> len(Further(mix=2).rows(np.arange(200), 1_000))
        600
        """
        others = np.setdiff1d(np.arange(total), focus)
        count = min(len(others), max(round(self.mix * len(focus)), _OTHERS if self.mix else 0))
        return np.union1d(focus, generator(self.seed, "mix").choice(others, count, replace=False))

    def recipe(self, base: Recipe, items: int) -> Recipe:
        """Return the recipe for a few epochs over ``items`` rows from where the network is."""
        training, batching = base.training, base.batching
        rates = {
            name: group.model_copy(update={"lr": group.lr * self.rate})
            for name in ("encoder", "tables", "heads")
            if (group := getattr(training, name)) is not None
        }
        schedule = training.schedule if training.schedule in ("linear", "cosine", "constant") else "linear"
        small = training.model_copy(
            update={
                **rates, "epochs": self.epochs, "schedule": schedule, "warmup_steps": None, "max_steps": None,
                "milestones": (), "averaging": None,
            }
        )  # fmt: skip
        changes: dict[str, Any] = {"batch_size": min(batching.batch_size, max(1, items // _BATCHES))}
        if hasattr(batching, "refresh"):
            changes["refresh"] = batching.refresh.model_copy(update={"start": 0})
        return base.model_copy(
            update={"training": small, "batching": batching.model_copy(update=changes), "seed": self.seed,
                    "init_from": None, "augment": None}
        )  # fmt: skip


def train_further(
    recipe: Recipe,
    network: Network,
    data: Dataset,
    focus: NDArray[np.int64],
    further: Further,
    *,
    name: str,
    say: Callable[[str], None],
    folder: Path | None = None,
    log: RunLog | None = None,
    identity: Mapping[str, str] | None = None,
    resume: bool = False,
) -> Phase:
    """Train a network on, in place, over the train rows ``focus`` and some others; return the finished phase.

    Args:
        recipe: by which the network was trained; of stages, that of the last one.
        network: all its weights are kept as the start.
        data: the data set; its validation rows are not looked at.
        focus: [n] train rows to learn from.
        further: how long, how fast, and with how many other rows.
        name: of the phase, in the log and in the folder.
        say: is called with a line on the rows.
        folder: for checkpoints; None saves nothing.
        log: gets the records of the steps.
        identity: what a resumed run must share.
        resume: continue from the checkpoints in the folder.
    """
    rows = further.rows(focus, len(data.train))
    some = data.replace(train=data.train.rows(rows))
    short = further.recipe(recipe, recipe.batching.epoch_items(some.train))
    spaces = network.spaces
    for head in short.dense_heads.values():
        if head.candidates is not None and head.candidates.graph:
            space = short.dense_heads[head.candidates.source].label_space
            spaces[space] = spaces[space].with_graph(some.train.targets, short.seed)
    steps = short.batching.steps(some.train)
    say(f"training on {len(focus):,} changed and {len(rows) - len(focus):,} other texts")
    title, ranks = f"{short.name} on {data.name}", network.ranks
    texts = ranks.rank0_first(lambda: Texts.of(some, dict(network.encoders.items())))
    with display(total_steps=steps * further.epochs, epochs=further.epochs, epoch_steps=steps, title=title) as show:
        phase = Phase(
            recipe=short, data=some, network=network, texts=texts, folder=folder, epochs=further.epochs, select=False,
            log=log or RunLog(None), show=show, name=name, identity=dict(identity or {}), carried=list(network.heads),
        )  # fmt: skip
        phase.run(resume=resume)
    return phase
