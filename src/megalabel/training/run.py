"""A whole run: train on what validation leaves, select, choose head weights, refit on everything."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from megalabel.data.tokens import store_tokens
from megalabel.errors import DataError, SettingError, nearest
from megalabel.training._show import resident_bytes
from megalabel.training.checkpoint import Checkpoint, list_checkpoints, load_checkpoint, save_checkpoint
from megalabel.training.choose_weights import choose_weights, rank
from megalabel.training.loop import Loop
from megalabel.training.network import Network
from megalabel.training.optim import flatten_state, restore_state
from megalabel.training.refresh import Refreshed
from megalabel.training.start_tables import start_tables
from megalabel.training.vectors import label_side, query_side

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor, nn

    from megalabel.data.dataset import Dataset
    from megalabel.recipes.schema import Recipe
    from megalabel.training.display import Show
    from megalabel.training.run_log import RunLog
    from megalabel.training.vectors import LabelSide
    from megalabel.types import Tokens

__all__ = ["Phase", "Stopped", "Texts"]

CHECKPOINT_SECONDS = 300.0  # within an epoch; every epoch ends with a checkpoint anyway


class Stopped(KeyboardInterrupt):
    """The user asked to stop; the state is saved."""


@dataclass(frozen=True)
class Texts:
    """Tokens of every text a run needs, mapped from the token store."""

    train: Tokens
    labels: Tokens
    val: Tokens | None

    @classmethod
    def of(cls, data: Dataset, encoder: nn.Module) -> Texts:
        """Tokenise once, or find what was tokenised before."""
        val = None if data.val is None else store_tokens(data.val.texts, encoder)  # type: ignore[arg-type]
        train, labels = (store_tokens(texts, encoder) for texts in (data.train.texts, data.labels.texts))  # type: ignore[arg-type]
        return cls(train, labels, val)


class Clock:
    """Seconds spent so far, with those of an earlier process before them."""

    def __init__(self, before: float = 0.0) -> None:
        self._start = time.monotonic() - before

    @property
    def seconds(self) -> float:
        """Return the seconds until now."""
        return time.monotonic() - self._start


@dataclass
class Phase:
    """One pass of training, from the first epoch to the last or to where patience ends.

    With ``select`` every evaluation is on validation rows and the best state is kept;
    without, the last state counts (a refit, which has no validation rows to look at).
    """

    recipe: Recipe
    data: Dataset
    network: Network
    texts: Texts
    folder: Path
    epochs: int
    select: bool
    log: RunLog
    show: Show
    name: str
    identity: dict[str, str]  # what a resumed run must share

    def run(self, *, resume: bool) -> dict[str, Any]:
        """Train, and leave the selected state in the network; return what was best."""
        if resume and (done := self._finished()):
            return done
        texts = self.texts
        loop = Loop(self.recipe, self.network, self.data.train, texts.train, texts.labels, self.show.pause)
        best: dict[str, Any] = {"epoch": -1, "value": None, "metrics": {}, "since": 0}
        self._clock = Clock()
        if resume and list_checkpoints(self.folder):
            best = self._restore(loop, load_checkpoint(self.folder))
            self.show.resumed(loop.step)
        else:
            with self.show.pause():
                start_tables(self.network, self.data.train, texts.train, texts.labels)
        self.log.rewind(loop.step, phase=self.name)
        saved = time.monotonic()
        with _stop_at_step() as stopping:
            while loop.epoch < self.epochs and not self._out_of_patience(best):
                for result in loop.run_epoch():
                    self.show.step(loss=result.loss, texts=result.queries)
                    self._write(
                        result.step, epoch=result.epoch, loss=result.loss, parts=result.parts, texts=result.queries,
                        **result.statistics,
                    )  # fmt: skip
                    if stopping() or time.monotonic() - saved > CHECKPOINT_SECONDS:
                        loop.check_weights()
                        self._save(loop, best)
                        saved = time.monotonic()
                        if stopping():
                            raise Stopped
                loop.check_weights()
                better = self.select and self._evaluate(loop, best)
                ended = loop.epoch == self.epochs or self._out_of_patience(best)
                self._save(loop, best, tags=["best"] * better + ["done"] * ended)
                saved = time.monotonic()
                if stopping():
                    raise Stopped
        if self.select and best["epoch"] >= 0:
            self._load_best(best)
        return best

    def _evaluate(self, loop: Loop, best: dict[str, Any]) -> bool:
        """Measure on validation rows when it is time; return whether this is the best so far."""
        settings = self.recipe.training
        if loop.epoch % settings.evaluate_every and loop.epoch != self.epochs:
            return False
        with self.show.pause():
            rows = self._watched()
            queries, labels = self._sides(rows)
            for name in queries:
                if not all(torch.isfinite(side.sum(dim=1)).all() for side in (queries[name], labels[name].vectors)):
                    raise loop.diverged(f"a vector of the head {name!r} holds NaN or infinity", loop.step)
            watched = self.data.replace(val=self.data.split("val").rows(rows))
            metrics = rank(watched, "val", queries, labels, dict.fromkeys(queries, 1.0)).metrics
        if settings.select not in metrics:
            raise SettingError(f"training.select is {settings.select!r}", remedy=nearest(settings.select, metrics))
        self._write(loop.step, epoch=loop.epoch, val=metrics)
        better = best["value"] is None or metrics[settings.select] > best["value"]
        self.show.evaluated(metrics, best=better)
        if better:
            best.update(epoch=loop.epoch, value=metrics[settings.select], metrics=metrics, since=0)
            return True
        best["since"] += 1
        return False

    def _write(self, step: int, **record: Any) -> None:
        """Log a record with the seconds this phase has taken and the memory it holds."""
        held = resident_bytes()
        memory = {} if held is None else {"memory_mb": round(held / 2**20)}
        self.log.write(step, phase=self.name, seconds=round(self._clock.seconds, 3), **memory, **record)

    def weights(self) -> dict[str, float]:
        """Return the head weights the recipe wants, chosen on validation where it says so."""
        wanted = self.recipe.predict.weights
        if isinstance(wanted, dict):
            return dict(wanted)
        names = list(self.recipe.heads)
        if wanted != "validation" or len(names) == 1 or self.texts.val is None:
            return {name: 1.0 / len(names) for name in names}
        queries, labels = self._sides()
        return choose_weights(self.data, queries, labels, self.recipe.training.select)

    def _watched(self) -> NDArray[np.int64]:
        """Return the validation rows that are looked at after an epoch: all, or some spread evenly."""
        total = len(self.data.split("val"))
        return np.linspace(
            0, total, min(total, self.recipe.training.evaluate_on or total), endpoint=False, dtype=np.int64
        )

    def _sides(self, rows: NDArray[np.int64] | None = None) -> tuple[dict[str, Tensor], dict[str, LabelSide]]:
        """Return the vectors of validation queries, all or these rows, and of all labels."""
        assert self.texts.val is not None
        self.network.eval()
        queries = self.texts.val if rows is None else self.texts.val.take(rows)
        texts = self.texts.labels if self.network.needs_text else None
        return query_side(self.network, queries), label_side(self.network, texts)

    def _out_of_patience(self, best: dict[str, Any]) -> bool:
        patience = self.recipe.training.patience
        return self.select and patience is not None and best["since"] >= patience

    def _save(self, loop: Loop, best: dict[str, Any], tags: Sequence[str] = ()) -> None:
        tensors = {f"network.{name}": value for name, value in self._state().items()}
        scalars = {}
        for group, optimiser in loop.optimisers.items():
            found, scalars[group] = flatten_state(optimiser)
            tensors |= {f"optimiser.{group}.{name}": value for name, value in found.items()}
        state = {
            "loop": loop.state(),
            "best": best,
            "optimisers": scalars,
            "identity": self.identity,
            "seconds": self._clock.seconds,
        }
        arrays: dict[str, NDArray[Any]] = {"clusters": loop.refreshed.clusters, "mined": loop.refreshed.mined}
        save_checkpoint(self.folder, loop.step, tensors, state, arrays, tags=tags)

    def _restore(self, loop: Loop, found: Checkpoint) -> dict[str, Any]:
        for key, value in self.identity.items():
            if found.state["identity"].get(key) != value:
                raise DataError(
                    f"this run was started with {'other' if key == 'data' else 'another'} {key}",
                    path=self.folder.parent.parent,
                    remedy=f"resume with the same {key}, or start anew in another folder",
                )
        for note in found.notes:
            self.show.note(note)
        self._load_weights(found)
        for group, optimiser in loop.optimisers.items():
            prefix = f"optimiser.{group}."
            tensors = {name.removeprefix(prefix): v for name, v in found.tensors.items() if name.startswith(prefix)}
            restore_state(optimiser, tensors, found.state["optimisers"][group])
        loop.epoch, loop.place, loop.step = (found.state["loop"][key] for key in ("epoch", "place", "step"))
        loop.refreshed = Refreshed(found.arrays["clusters"].copy(), found.arrays["mined"].copy())
        self._clock = Clock(found.state["seconds"])
        best: dict[str, Any] = found.state["best"]
        return best

    def _load_weights(self, found: Checkpoint) -> None:
        with torch.no_grad():
            for name, value in self._state().items():
                value.copy_(found.tensors[f"network.{name}"])

    def _load_best(self, best: dict[str, Any]) -> None:
        """Load the weights of the best epoch; an older best one does not stand in for one that is damaged."""
        found = load_checkpoint(self.folder, tag="best")
        if found.state["best"]["epoch"] != best["epoch"]:
            raise DataError(
                f"the checkpoint of epoch {best['epoch']}, the best on validation, cannot be read", path=self.folder,
                remedy="train from the start",
            )  # fmt: skip
        self._load_weights(found)

    def _state(self) -> dict[str, Tensor]:
        """Return every parameter once, and what else the modules say belongs to their state (a running mean, say)."""
        parameters = dict(self.network.named_parameters())
        again = {name for name, _ in self.network.named_parameters(remove_duplicate=False)}
        buffers = {name: value for name, value in self.network.state_dict().items() if name not in again}
        return {name: value.detach() for name, value in (parameters | buffers).items()}

    def _finished(self) -> dict[str, Any] | None:
        """Return what was best if this phase had come to its end before."""
        try:
            found = load_checkpoint(self.folder, tag="done")
        except DataError:
            return None
        if found.state["identity"] != self.identity:
            return None
        best: dict[str, Any] = found.state["best"]
        if self.select and best["epoch"] >= 0:
            self._load_best(best)
        else:
            self._load_weights(found)
        return best


@contextmanager
def _stop_at_step() -> Iterator[Callable[[], bool]]:
    """Turn the first Ctrl-C into a wish to stop at the end of the step; a second one stops at once."""
    asked = False

    def ask(number: int, frame: Any) -> None:
        nonlocal asked
        asked = True
        signal.signal(signal.SIGINT, before)

    try:
        before = signal.signal(signal.SIGINT, ask)
    except ValueError:  # not the main thread: whoever runs us handles signals
        yield lambda: False
        return
    try:
        yield lambda: asked
    finally:
        signal.signal(signal.SIGINT, before)
