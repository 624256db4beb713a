"""One phase of a run: a stage trained from its first epoch to its last, evaluated, checkpointed, resumed."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from megalabel.batching.bm25 import mine_bm25
from megalabel.batching.negatives import NO_LISTS
from megalabel.errors import DataError, SettingError, nearest
from megalabel.metrics.measure import measure
from megalabel.network.cascade import Cascade
from megalabel.network.init import init_heads
from megalabel.network.network import Network
from megalabel.network.texts import TextTokens
from megalabel.network.vectors import all_queries, label_side, space_side
from megalabel.ranks import ALONE, Ranks
from megalabel.recipes.build import build_network
from megalabel.training.averaging import WeightAverage
from megalabel.training.checkpoint import Checkpoint, list_checkpoints, load_checkpoint, save_checkpoint
from megalabel.training.checkpoint.state import collect_state, load_weights, restore_optimisers
from megalabel.training.choose_weights import choose_weights, rank
from megalabel.training.display import resident_bytes
from megalabel.training.loop import Loop

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor, nn

    from megalabel.data.dataset import Dataset
    from megalabel.network.vectors import LabelSide
    from megalabel.recipes.schema import Recipe
    from megalabel.training.display import Display
    from megalabel.training.run_log import RunLog

__all__ = ["Phase", "Stopped", "Texts"]

CHECKPOINT_SECONDS = 300.0  # between checkpoints within an epoch; every epoch also ends with one


class Stopped(KeyboardInterrupt):
    """The user (SIGINT) or the system (SIGTERM) asked to stop; the state is saved."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.number = number


@dataclass(frozen=True)
class Texts:
    """Tokens of every text a run needs, mapped from the token store."""

    train: TextTokens
    labels: TextTokens
    val: TextTokens | None

    @classmethod
    def of(cls, data: Dataset, encoders: Mapping[str, nn.Module]) -> Texts:
        """Tokenise, or read the tokens from the store."""
        val = None if data.val is None else TextTokens.stored(data.val.texts, encoders)
        train, labels = (TextTokens.stored(texts, encoders) for texts in (data.train.texts, data.labels.texts))
        return cls(train, labels, val)


class Clock:
    """Seconds spent so far, including those of the process that was resumed."""

    def __init__(self, before: float = 0.0) -> None:
        self._start = time.monotonic() - before

    @property
    def seconds(self) -> float:
        """Return the seconds until now."""
        return time.monotonic() - self._start


@dataclass
class Phase:
    """One pass of training, from the first epoch to the last, or until patience runs out.

    With ``select``, evaluations on validation rows select the best state; without, the last
    state is kept (a refit, which has no validation rows). Without a folder nothing is saved.
    """

    recipe: Recipe
    data: Dataset
    network: Network
    texts: Texts
    folder: Path | None
    epochs: int
    select: bool
    log: RunLog
    show: Display
    name: str
    identity: dict[str, str]  # what a resumed run must share
    carried: Sequence[str] = ()  # heads whose weights come from an earlier stage or run
    watch: Callable[[int], None] = lambda epoch: None  # called with the epoch of each evaluation, once it is saved

    def run(self, *, resume: bool) -> dict[str, Any]:
        """Train, load the selected state into the network, and return the best evaluation."""
        if resume and (done := self._finished()):
            return done
        texts = self.texts
        loop = Loop(
            self.recipe, self.network, self.data.train, texts.train, texts.labels, self.show.pause, self._lexical()
        )
        self._average = WeightAverage(self.recipe.training.averaging, self.network)
        best: dict[str, Any] = {"epoch": -1, "value": None, "metrics": {}, "since": 0}
        self._clock = Clock()
        ranks, folder = self.network.ranks, self.folder
        if resume and folder is not None and ranks.broadcast(lambda: bool(list_checkpoints(folder))):
            best = self._restore(loop, load_checkpoint(folder, ranks=ranks), folder)
            self.show.resumed(loop.step)
        else:
            with self.show.pause():
                init_heads(
                    self.network, self.data.train.targets, texts.train, texts.labels,
                    keep=self.carried, seed=self.recipe.seed,
                )  # fmt: skip
        self.log.rewind(loop.step, phase=self.name)
        saved = time.monotonic()
        with _stop_at_step(ranks) as stopping:
            while not self._ended(loop, best):
                for result in loop.run_epoch():
                    self._average.after_step(result.epoch)
                    self.show.step(loss=result.loss, texts=result.queries)
                    self._write(
                        result.step, epoch=result.epoch, loss=result.loss, parts=result.parts, texts=result.queries,
                        rates=result.rates, **result.statistics,
                    )  # fmt: skip
                    if any(ranks.max_int(stopping(), time.monotonic() - saved > CHECKPOINT_SECONDS)):
                        loop.check_weights()
                        self._save(loop, best)
                        saved = time.monotonic()
                        self._stop(stopping())
                loop.check_weights()
                better = self.select and self._evaluate(loop, best)
                self._save(loop, best, tags=["best"] * better + ["done"] * self._ended(loop, best))
                saved = time.monotonic()
                self._stop(stopping())
                if self.select and best["epoch"] >= 0:
                    self.watch(loop.epoch)
        if self.select and best["epoch"] >= 0:
            load_weights(self.network, self._selected(best, ranks), averaged=True)
        else:
            self._average.apply()
        return best

    def _lexical(self) -> NDArray[np.int32]:
        """Return the negatives [N, top] by BM25 if the recipe wants some; every rank finds those of its own points."""
        top, train, ranks = self.recipe.batching.bm25_top, self.data.train, self.network.ranks
        if not top:
            return NO_LISTS
        own = ranks.share(len(train))
        part = train.rows(np.arange(own.start, own.stop))
        with self.show.pause():
            mined = mine_bm25(part.texts, self.data.labels.texts, part.targets, part.filter, top)
        lists: NDArray[np.int32] = ranks.gather(torch.from_numpy(mined), ranks.sizes(len(train))).numpy()
        return lists

    def _stop(self, number: int) -> None:
        """Raise if a signal asked this rank, or another one, to stop."""
        if number := self.network.ranks.max_int(number)[0]:
            raise Stopped(number)

    def _evaluate(self, loop: Loop, best: dict[str, Any]) -> bool:
        """Evaluate on validation rows if due; return whether this is the best so far."""
        settings = self.recipe.training
        if loop.epoch % settings.evaluate_every and loop.epoch != self.epochs and not loop.at_end:
            return False
        with self.show.pause(), self._average.applied():
            rows = self._watched()
            queries, labels = self._sides(rows)
            for name in queries:
                sides = (queries[name], labels[name].vectors)
                if any(self.network.ranks.max_int(*(not torch.isfinite(side.sum(dim=1)).all() for side in sides))):
                    raise loop.diverged(f"a vector of the head {name!r} holds NaN or infinity", loop.step)
            watched = self.data.replace(val=self.data.split("val").rows(rows))
            metrics = self._rank(watched, queries, labels)
        if settings.select not in metrics:
            raise SettingError(f"training.select is {settings.select!r}", remedy=nearest(settings.select, metrics))
        self._write(loop.step, epoch=loop.epoch, val=metrics)
        better = best["value"] is None or metrics[settings.select] > best["value"]
        self.show.evaluated(metrics, by=settings.select, best=better)
        if better:
            best.update(epoch=loop.epoch, value=metrics[settings.select], metrics=metrics, since=0)
            return True
        best["since"] += 1
        return False

    def _rank(
        self, watched: Dataset, queries: Mapping[str, Tensor], sides: Mapping[str, LabelSide]
    ) -> dict[str, float]:
        """Return the metrics of validation rows, searched as the model will: through a cascade, or over all labels."""
        network, cascade = self.network, self.recipe.predict.cascade
        if cascade is not None:
            search = Cascade.of(network, sides, cascade.beams(self.recipe.dense_heads), cascade.weights)
            best = search.answers(queries).best(100, watched.split("val").excluded())
            return measure(watched, best.ids, "val").metrics
        equal = {name: 1.0 for name, weight in self.equal_weights().items() if weight}
        labels = label_side(network, None, {name: sides[name] for name in equal})
        return rank(watched, "val", queries, labels, equal, network.ranks).metrics

    def _write(self, step: int, **record: Any) -> None:
        """Log a record with the seconds of this phase and the memory of the process."""
        held = resident_bytes()
        memory = {} if held is None else {"memory_mb": round(held / 2**20)}
        self.log.write(step, phase=self.name, seconds=round(self._clock.seconds, 3), **memory, **record)

    def weights(self) -> dict[str, float]:
        """Return the weights of the heads as in the recipe, chosen on validation rows if it says so."""
        wanted = self.recipe.predict.weights
        if isinstance(wanted, dict):
            return dict(wanted)
        if wanted != "validation" or len(self.network.heads) == 1 or self.texts.val is None:
            return self.equal_weights()
        queries, labels = self._sides()
        labels = label_side(self.network, None, labels)
        return choose_weights(self.data, queries, labels, self.recipe.training.select, self.network.ranks)

    def equal_weights(self) -> dict[str, float]:
        """Return equal weights for the heads that score the labels themselves, 0 for the others.

        If all of them score groups, as in a stage that trains a meta-classifier, they all count: a label has the score
        of its group.
        """
        names = [name for name in self.network.heads if self.network.space(name).members is None]
        names = names or [*self.network.heads]
        return {name: 1.0 / len(names) if name in names else 0.0 for name in self.network.heads}

    def _watched(self) -> NDArray[np.int64]:
        """Return the validation rows evaluated after an epoch: all, or an evenly spread sample."""
        total = len(self.data.split("val"))
        return np.linspace(
            0, total, min(total, self.recipe.training.evaluate_on or total), endpoint=False, dtype=np.int64
        )

    def _sides(self, rows: NDArray[np.int64] | None = None) -> tuple[dict[str, Tensor], dict[str, LabelSide]]:
        """Return the vectors of validation queries, all or these rows, and of what each head scores of this shard."""
        assert self.texts.val is not None
        self.network.eval()
        queries = self.texts.val if rows is None else self.texts.val.take(rows)
        texts = self.texts.labels if self.network.needs_text else None
        return all_queries(self.network, queries), space_side(self.network, texts)

    def _ended(self, loop: Loop, best: dict[str, Any]) -> bool:
        """Return whether all epochs or steps are done, or patience ran out."""
        patience = self.recipe.training.patience
        impatient = self.select and patience is not None and best["since"] >= patience
        return loop.epoch >= self.epochs or loop.at_end or impatient

    def _save(self, loop: Loop, best: dict[str, Any], tags: Sequence[str] = ()) -> None:
        if self.folder is None:
            return
        tensors, rows, scalars = collect_state(self.network, loop.optimisers, self._average.means)
        state = {
            "loop": loop.state(),
            "average": self._average.state(),
            "best": best,
            "optimisers": scalars,
            "identity": self.identity,
            "seconds": self._clock.seconds,
        }
        ranks = self.network.ranks
        self.log.flush()
        save_checkpoint(self.folder, loop.step, tensors, state, loop.arrays(), rows=rows, ranks=ranks, tags=tags)

    def _restore(self, loop: Loop, checkpoint: Checkpoint, folder: Path) -> dict[str, Any]:
        for key, value in self.identity.items():
            if checkpoint.state["identity"].get(key) != value:
                raise DataError(
                    f"this run was started with {'other' if key == 'data' else 'another'} {key}",
                    path=folder.parent.parent,
                    remedy=f"resume with the same {key}, or start a new run in another folder",
                )
        for note in checkpoint.notes:
            self.show.note(note)
        load_weights(self.network, checkpoint)
        restore_optimisers(self.network, loop.optimisers, checkpoint)
        self._average.restore(checkpoint, {name: self.network.row_owner(name) for name in self.network.label_rows()})
        loop.restore(checkpoint.state["loop"], checkpoint.arrays)
        self._clock = Clock(checkpoint.state["seconds"])
        best: dict[str, Any] = checkpoint.state["best"]
        return best

    def _selected(self, best: dict[str, Any], ranks: Ranks) -> Checkpoint:
        """Return the checkpoint of the best epoch; an error if it is damaged, even if an older one exists."""
        assert self.folder is not None
        if not self.select or best["epoch"] < 0:
            return load_checkpoint(self.folder, tag="done", ranks=ranks)
        checkpoint = load_checkpoint(self.folder, tag="best", ranks=ranks)
        if checkpoint.state["best"]["epoch"] != best["epoch"]:
            raise DataError(
                f"the checkpoint of epoch {best['epoch']}, the best on validation, cannot be read", path=self.folder,
                remedy="train from the start",
            )  # fmt: skip
        return checkpoint

    def _finished(self) -> dict[str, Any] | None:
        """Return the best evaluation if this phase is already finished."""
        ranks = self.network.ranks
        assert self.folder is not None
        try:
            checkpoint = load_checkpoint(self.folder, tag="done", ranks=ranks)
        except DataError:
            return None
        if checkpoint.state["identity"] != self.identity:
            return None
        best: dict[str, Any] = checkpoint.state["best"]
        load_weights(self.network, self._selected(best, ranks), averaged=True)
        return best

    def whole(self, best: dict[str, Any]) -> Network:
        """Return the selected network with the rows of all labels; only one rank calls this."""
        if self.network.ranks.alone:
            return self.network
        encoders = dict(self.network.encoders.items())
        network = build_network(self.recipe, encoders, self.network.spaces).to(self.network.device)
        load_weights(network, self._selected(best, ALONE), averaged=True)
        return network


@contextmanager
def _stop_at_step(ranks: Ranks) -> Iterator[Callable[[], int]]:
    """Let the first Ctrl-C or SIGTERM stop the run at the end of the step, and the second one at once.

    The function it yields returns the number of the signal, or 0. With several ranks a second Ctrl-C is ignored
    too: a terminal and torchrun each send one. SIGTERM then means that another rank has died
    (:func:`~megalabel.training.distributed.join`). A SIGTERM handler of the caller stays in place.
    """
    asked = 0

    def ask(number: int, frame: Any) -> None:
        nonlocal asked
        asked = number
        if ranks.alone:
            restore()

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    terminated = ranks.alone and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    before: dict[int, Any] = {}
    try:
        for number in (signal.SIGINT, *([signal.SIGTERM] if terminated else [])):
            before[number] = signal.signal(number, ask)
    except ValueError:  # not the main thread: the caller handles signals
        yield lambda: 0
        return
    try:
        yield lambda: asked
    finally:
        restore()
