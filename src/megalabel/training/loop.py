"""The only training loop: every recipe uses it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np
import torch
from scipy.sparse import csr_matrix

from megalabel.batching import generator
from megalabel.batching.candidates import CandidateBuilder
from megalabel.batching.from_heads import HeadCandidates
from megalabel.batching.log_q import RunningLogQ
from megalabel.batching.negatives import NO_LISTS
from megalabel.batching.order import ByLabel, ByLabelOrder, Clustered, Order, Shuffled
from megalabel.batching.pool import PoolBuilder
from megalabel.errors import DataError, SettingError
from megalabel.memory import trim_memory
from megalabel.network.vectors import EncodedTexts
from megalabel.recipes.effects import mines_once
from megalabel.training.optim import clip_gradients, make_optimisers, sum_gradients
from megalabel.training.optim.schedule import Schedule
from megalabel.training.refresh import Refreshed, refresh
from megalabel.training.step import Step
from megalabel.types import LABELS, Batch, Targets, View

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch.optim import Optimizer

    from megalabel.data.dataset import Split
    from megalabel.network.network import Network
    from megalabel.network.spaces import LabelSpace
    from megalabel.network.texts import TextTokens
    from megalabel.recipes.optimisers import OptimiserSettings
    from megalabel.recipes.schema import Recipe

__all__ = ["Loop", "StepResult"]

_MANY = 65_536  # a step with more labels takes long enough to return memory to the system


@dataclass(frozen=True)
class StepResult:
    """What one step reports."""

    epoch: int
    step: int  # counted over all epochs
    loss: float
    parts: dict[str, float]
    queries: int
    rates: dict[str, float]  # learning rates
    statistics: dict[str, float]


@dataclass
class Loop:
    """Trains a network on one split, step by step.

    Random numbers in a step depend only on seed, epoch and position in the epoch, so a
    resumed run needs no saved generators: the same state and position give the same step,
    bit for bit.

    Args:
        recipe: batching, optimisers, schedule.
        network: what is trained.
        split: the training points.
        queries: tokens of their texts.
        labels: tokens of the label texts.
        pause: context manager for work within an epoch that shows its own progress.
        lexical: [N, top] BM25 negatives of each point, if the recipe uses them.
    """

    recipe: Recipe
    network: Network
    split: Split
    queries: TextTokens
    labels: TextTokens
    pause: Callable[[], AbstractContextManager[None]] = nullcontext
    lexical: NDArray[np.int32] = field(default_factory=lambda: NO_LISTS)
    epoch: int = 0  # epoch of the next step
    place: int = 0  # its position in the epoch
    step: int = 0
    refreshed: Refreshed = field(default_factory=Refreshed)
    optimisers: dict[str, Optimizer] = field(init=False)

    def __post_init__(self) -> None:
        settings = self.recipe.batching
        items = settings.epoch_items(self.split)
        self.batch_size = settings.size(items)
        if self.batch_size > items:
            what = "labels with a training point" if settings.by_label else "training points"
            raise DataError(
                f"batch_size {self.batch_size:,} is larger than the {items:,} {what}",
                remedy=f"--set batching.batch_size={max(1, items // 8)}",
            )
        self.optimisers = make_optimisers(self._groups(), self._parameters())
        self.log_q = settings.log_q_estimate(self.split.targets, self.split.filter, self.batch_size)
        self.steps_per_epoch = settings.steps(self.split)
        self.schedule = self._schedule()
        spaces = self.network.spaces
        proposed = any(head.candidates is not None for head in self.recipe.dense_heads.values())
        self.truth = {name: self._truth(spaces[name]) for name in spaces if proposed or len(spaces) > 1}
        self._attach()
        self.stepper = Step(self.network, self.recipe.training.chunk_size, self._proposals())

    def _attach(self) -> None:
        """Let the heads look at the train points; refuse what several ranks cannot do."""
        network = self.network
        self.neighbours = [name for name in network.heads if network.head(name).settings.reads_neighbours]
        if self.neighbours and not network.ranks.alone:
            raise SettingError(
                f"heads.{self.neighbours[0]}: several ranks cannot train a head that reads neighbours of labels",
                remedy="train in one process",
            )
        for name, encoder in network.encoders.items():
            if getattr(encoder, "batch_statistics", False) and name not in network.frozen and not network.ranks.alone:
                raise SettingError(
                    f"encoders.{name}: several ranks do not share the statistics of a batch",
                    remedy="train in one process, or freeze the encoder",
                )
        for name in self.neighbours:
            network.head(name).attach(self._truth(network.space(name)), self.recipe.seed)

    def _schedule(self) -> Schedule:
        training = self.recipe.training
        total = self.steps_per_epoch * training.epochs
        total = total if training.max_steps is None else min(total, training.max_steps)
        steps = training.warmup_steps
        return Schedule(
            kind=training.schedule,
            total_steps=total,
            warmup_steps=round(training.warmup * total) if steps is None else steps,
            cooldown_steps=round(training.cooldown * total),
            milestones=tuple(self.steps_per_epoch * epoch for epoch in training.milestones),
            milestone_factor=training.milestone_factor,
        )

    def _truth(self, space: LabelSpace) -> csr_matrix:
        """Return the relevance [N, size] of the train rows in a label space, without filtered pairs."""
        return space.targets(self.split.without(self.split.filter).targets)

    def _proposals(self) -> dict[str, HeadCandidates]:
        """Return, by head, the builder of candidates from the scores of another head."""
        network, proposals = self.network, {}
        for name in network.heads:
            candidates = network.head(name).settings.candidates
            if candidates is None:
                continue
            if not network.ranks.alone:
                raise SettingError(
                    f"heads.{name}.candidates: candidates from another head cannot be used with several ranks",
                    remedy="train in one process, or take candidates from the batch",
                )
            space = network.space(name)
            proposals[name] = HeadCandidates(
                self.truth[space.name],
                network.space(candidates.source).relation(space),
                self.split.filter if space.members is None else None,
                network.space(candidates.source).graph if candidates.graph else None,
            )
        return proposals

    def run_epoch(self) -> Iterator[StepResult]:
        """Yield the results of the remaining steps of the current epoch, then advance to the next epoch."""
        self._refresh_if_due()
        builder = self._builder()
        batches = self._order(builder).batches(self.epoch)
        self.network.train()
        begun = self.place
        while self.place < len(batches) and not self.at_limit:
            if self.place > begun and self._refresh_if_due():
                builder = self._builder()
                self.network.train()
            rng = generator(self.recipe.seed, "step", self.epoch, self.place)
            batch = self._with_spaces(builder.build(batches[self.place], rng=rng))
            torch.manual_seed(int(rng.integers(2**62)) + self.network.ranks.rank)
            self.place += 1
            if len(batch.queries):
                yield self._step(batch, builder)
        if self.neighbours:
            with self.pause():
                self.network.eval()
                for name in self.neighbours:
                    self.network.head(name).after_epoch(EncodedTexts(self.network, name, self.queries, self.labels))
        self.epoch, self.place = self.epoch + 1, 0

    @property
    def at_limit(self) -> bool:
        """Whether ``max_steps`` are done."""
        limit = self.recipe.training.max_steps
        return limit is not None and self.step >= limit

    @property
    def at_end(self) -> bool:
        """Whether ``max_steps`` are done and the epoch they ended in has been finished."""
        return self.at_limit and self.place == 0

    def _refresh_if_due(self) -> bool:
        """Compute clusters and hard negatives from the current weights when it is time; return whether it was."""
        frozen = mines_once(self.recipe)
        if not self.recipe.batching.refresh_due(self.epoch, self.step, self.place, frozen=frozen):
            return False
        with self.pause():
            self.refreshed = refresh(
                self.network, self.recipe.batching, self.split, self.queries, self.labels,
                epoch=self.epoch, seed=self.recipe.seed + self.epoch,
            )  # fmt: skip
        return True

    def _builder(self) -> PoolBuilder | CandidateBuilder:
        split = self.split
        return self.recipe.batching.builder(split.targets, split.filter, self.refreshed.mined, self.lexical)

    def _step(self, batch: Batch, builder: PoolBuilder | CandidateBuilder) -> StepResult:
        self.schedule.apply(min(self.step, self.schedule.total_steps - 1), self.optimisers.values())
        rows = batch.queries.numpy()
        self._check_agreement(batch)
        moved = batch.to(self.network.device)
        log_q = self._log_q(moved.view.pool)
        parts = self.stepper.losses(moved, self.queries.take(rows), self.labels, log_q, self.queries, self.epoch)
        total = self.stepper.total(parts)
        value = float(total.detach())
        if not math.isfinite(value):
            bad = [name for name, part in parts.items() if not math.isfinite(float(part.detach()))]
            raise self.diverged(f"the loss of {' and '.join(bad) or 'all heads'} is {value}", self.step + 1)
        large = batch.view.pool is None and len(self.network.shard) > _MANY
        if large:
            trim_memory()
        total.backward()  # type: ignore[no-untyped-call]
        self._share_gradients()
        for optimiser in self.optimisers.values():
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
        if large:
            trim_memory()
        self.step += 1
        values = {name: float(part.detach()) for name, part in parts.items()}
        rates = {name: float(each.param_groups[0]["lr"]) for name, each in self.optimisers.items()}
        return StepResult(self.epoch, self.step, value, values, len(rows), rates, builder.statistics(batch))

    def _log_q(self, pool: torch.Tensor | None) -> torch.Tensor | None:
        """Return log q [P] of the pool; a running estimate is updated first."""
        if self.log_q is None or pool is None:
            return None
        if isinstance(self.log_q, RunningLogQ):
            self.log_q.update(pool)
        return self.log_q.log_q(pool)

    def _with_spaces(self, batch: Batch) -> Batch:
        """Return the batch with a view of all groups for every coarser space."""
        coarse = {name: truth for name, truth in self.truth.items() if name != LABELS}
        rows = batch.queries.numpy()
        views = {name: View(Targets.from_csr(csr_matrix(truth[rows]))) for name, truth in coarse.items()}
        return replace(batch, views={**batch.views, **views}) if views else batch

    def _share_gradients(self) -> None:
        """Sum the gradients of shared parameters over the ranks, then clip."""
        network, sharded = self.network, list(self.network.sharded().values())
        sharded_ids = {id(parameter) for parameter in sharded}
        sum_gradients([part for part in network.parameters() if id(part) not in sharded_ids], network.ranks)
        if self.recipe.training.clip is not None:
            others: dict[str, Any] = {} if network.ranks.alone else {"sharded": sharded, "ranks": network.ranks}
            clip_gradients(network.parameters(), self.recipe.training.clip, **others)

    def _check_agreement(self, batch: Batch) -> None:
        """Raise a DataError if the ranks have different batches; the same data and seeds rule this out."""
        ranks = self.network.ranks
        if ranks.alone:
            return
        parts = [batch.queries, *(part for part in (batch.view.pool, batch.view.candidates) if part is not None)]
        number = crc32(b"".join(part.numpy().tobytes() for part in parts))
        largest, negated_smallest = ranks.max_int(number, -number)
        if largest != -negated_smallest:
            raise DataError(
                f"the ranks disagree on the texts and labels of step {self.step + 1}",
                remedy="run the same release, with the same number of threads, on processors of the same kind",
            )

    def check_weights(self) -> None:
        """Raise a DataError if a step has left NaN or infinity in a weight, so that it never reaches a checkpoint."""
        names, values = zip(*self.network.named_parameters(), strict=True)
        for name, bad in zip(names, self.network.ranks.max_int(*map(_not_finite, values)), strict=True):
            if bad:
                raise self.diverged(f"{name} holds NaN or infinity", self.step)

    def diverged(self, what: str, step: int) -> DataError:
        """Return the error for a loss or weight that is not finite."""
        return DataError(
            f"{what} at epoch {self.epoch + (self.place > 0)}, step {step}; checkpoints from before are kept",
            remedy="lower the learning rate (--set training.encoder.lr=...) or raise the temperature",
        )

    def _order(self, builder: PoolBuilder | CandidateBuilder) -> Order:
        settings = self.recipe.batching.order
        if isinstance(settings, ByLabelOrder):
            assert isinstance(builder, PoolBuilder)  # settings refuse candidates
            return ByLabel(
                builder.truth, self.batch_size, self.recipe.seed, power=settings.power, replacement=settings.replacement
            )
        if len(self.refreshed.clusters):
            return Clustered(self.refreshed.clusters, self.batch_size, self.recipe.seed)
        return Shuffled(np.arange(len(self.split)), self.batch_size, self.recipe.seed)

    def _groups(self) -> dict[str, OptimiserSettings]:
        training = self.recipe.training
        settings = {
            "encoder": training.encoder,
            "heads": training.heads or training.encoder,
            "tables": training.tables or training.encoder.rowwise(),
        }
        if not settings["tables"].takes_sparse and self._sparse_gradients():
            how = "'sgd' with momentum or weight_decay" if settings["tables"].kind == "sgd" else "'adamw'"
            raise SettingError(
                f"training.tables.kind is {how}, which cannot take the sparse gradients of tables",
                remedy="choose lazy_adamw (adamw, row by row) or row_adagrad",
            )
        return settings

    def _sparse_gradients(self) -> bool:
        """Return whether a step touches only some rows of a table."""
        network = self.network
        if any(hasattr(encoder, "sparse_parameters") for name, encoder in network.encoders.items()
               if name not in network.frozen):  # fmt: skip
            return True
        heads = [network.head(name) for name in network.heads]
        some = self.recipe.batching.labels != "all"
        return any(head.tables() and (some or head.settings.candidates is not None) for head in heads)

    def _parameters(self) -> dict[str, list[tuple[str, torch.nn.Parameter]]]:
        """Sort parameters into tables (sparse rows), heads and encoders; a shared one is listed once."""
        network = self.network
        tables = {id(table) for name in network.heads for table in network.head(name).tables()}
        for encoder in network.encoders.values():
            tables |= {id(parameter) for parameter in getattr(encoder, "sparse_parameters", list)()}
        groups: dict[str, list[tuple[str, torch.nn.Parameter]]] = {"encoder": [], "heads": [], "tables": []}
        for name, parameter in network.named_parameters():
            group = "tables" if id(parameter) in tables else "heads" if name.startswith("heads.") else "encoder"
            groups[group].append((name, parameter))
        return groups

    def state(self) -> dict[str, Any]:
        """Return the position of the loop."""
        return {"epoch": self.epoch, "place": self.place, "step": self.step}

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays that a checkpoint needs in addition to :meth:`state`."""
        arrays: dict[str, NDArray[Any]] = {"clusters": self.refreshed.clusters, "mined": self.refreshed.mined}
        if isinstance(self.log_q, RunningLogQ):
            arrays["log_q"] = self.log_q.state()
        return arrays

    def restore(self, state: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        """Continue from what :meth:`state` and :meth:`arrays` returned."""
        self.epoch, self.place, self.step = (state[key] for key in ("epoch", "place", "step"))
        self.refreshed = Refreshed(arrays["clusters"].copy(), arrays["mined"].copy())
        if isinstance(self.log_q, RunningLogQ):
            self.log_q.restore(arrays["log_q"])


def _not_finite(value: torch.Tensor) -> bool:
    return value.numel() > 0 and not all(math.isfinite(float(end)) for end in value.detach().aminmax())
