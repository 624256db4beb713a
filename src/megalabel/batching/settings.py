"""Settings of batching: which queries share a step, and which labels they are scored against."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from pydantic import PositiveInt, field_validator, model_validator
from pydantic_core import PydanticCustomError

from megalabel.batching.negatives import NO_LISTS, Mined, Negatives, NegativeSettings, Uniform
from megalabel.batching.order import ByLabelOrder, ClusteredOrder, OrderSettings, ShuffledOrder
from megalabel.batching.positives import All, Picker, PositiveSettings, Some, SomePositives
from megalabel.settings import NonNegativeInt, Settings, one_of

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from scipy.sparse import csr_matrix

    from megalabel.batching.candidates import CandidateBuilder
    from megalabel.batching.log_q import EntryChance, RunningLogQ
    from megalabel.batching.pool import PoolBuilder
    from megalabel.data.dataset import Split

__all__ = [
    "BATCHING_KINDS",
    "AllBatching",
    "Batching",
    "BatchingSettings",
    "CandidateBatching",
    "HeadsBatching",
    "PoolBatching",
    "Refresh",
    "SampledBatching",
    "count_distinct",
]


class Refresh(Settings):
    """When clusters and mined negatives are computed from the current vectors.

    With ``every_steps`` negatives are mined within an epoch too, as in ANCE (Xiong et al., ICLR 2021). There a second
    process mines while training goes on, and its negatives come in when they are ready; here training waits for
    them, so that a run can be repeated and resumed.
    """

    start: NonNegativeInt = 5  # epochs trained before the first refresh; 0: before the first epoch
    every: PositiveInt = 5  # epochs between two refreshes
    every_steps: PositiveInt | None = None  # in place of every: steps between two refreshes

    @model_validator(mode="after")
    def _check(self) -> Refresh:
        self.require(self.every_steps is None, "every", "every_steps is given")
        return self


class Batching(Settings):
    """What every kind of batching shares.

    ``loss_positives`` limits the positives that the loss sees: all, one, or at most a number, drawn again in
    each step. ``unsampled`` says what becomes of the others: they are masked, or they count as negatives, as
    in the published softmax code of DEXML (pick-one-label, Menon et al. 2019).
    """

    renamed: ClassVar[Mapping[str, str]] = {"least_batches": "min_batches"}
    labels: str
    batch_size: PositiveInt = 1024
    min_batches: PositiveInt | None = None  # per epoch, at least: a small set gets smaller batches
    order: OrderSettings = ShuffledOrder()
    refresh: Refresh = Refresh()
    loss_positives: Literal["all", "one"] | PositiveInt = "all"
    unsampled: Literal["mask", "negative"] = "mask"

    @field_validator("loss_positives", mode="before")
    @classmethod
    def _check_loss_positives(cls, value: object) -> object:
        number = isinstance(value, int) and not isinstance(value, bool) and value > 0
        if not number and value not in ("all", "one"):
            raise PydanticCustomError("choice", "expected all, one or a whole number above 0")
        return value

    @model_validator(mode="after")
    def _check_shared(self) -> Batching:
        made = "made of labels" if self.by_label else "shuffled"
        self.require(self.clusters or self.mines, "refresh", f"batches are {made} and no negatives are mined")
        self.require(self.labels != "heads", "loss_positives", "candidates of heads hold all positives")
        self.require(self.loss_positives != "all", "unsampled", "loss_positives is all")
        if self.clusters and self.refresh.every_steps is not None:
            raise ValueError("refresh.every_steps: clusters cannot change within an epoch; give refresh.every")
        if isinstance(self.order, ClusteredOrder) and (self.order.size or 0) > self.batch_size:
            raise ValueError(f"order.size is {self.order.size:,}, more than the {self.batch_size:,} of a batch")
        return self

    @property
    def one_positive(self) -> bool:
        """Whether a loss never sees more than one positive of a query."""
        return self.loss_positives == "one" or self.loss_positives == 1

    @property
    def clusters(self) -> bool:
        """Whether batches are clusters of similar queries."""
        return isinstance(self.order, ClusteredOrder)

    @property
    def by_label(self) -> bool:
        """Whether batches are made of labels, with a query for each."""
        return isinstance(self.order, ByLabelOrder)

    def cluster_size(self, epoch: int, points: int) -> int:
        """Return how many queries a cluster that is made before this epoch has, counted from 0."""
        size = self.size(points)
        return self.order.size_at(epoch, size) if isinstance(self.order, ClusteredOrder) else size

    @property
    def mining(self) -> NegativeSettings | None:
        """The settings of mined negatives; None if no negatives are mined."""
        return None

    @property
    def mines(self) -> bool:
        """Whether hard negatives are mined from the current vectors."""
        return self.mining is not None

    @property
    def bm25_top(self) -> int:
        """How many wrong labels of each query BM25 finds before training; 0 without such negatives."""
        return 0

    def refresh_due(self, epoch: int, step: int = 0, place: int = 0, *, frozen: bool = False) -> bool:
        """Return whether clusters and negatives are computed now.

        Args:
            epoch: the epoch of the next step, counted from 0.
            step: steps so far.
            place: those of them that belong to this epoch.
            frozen: training does not change the vectors that find negatives, so once is enough.
        """
        since = epoch - self.refresh.start
        if since < 0 or not (self.clusters or self.mines):
            return False
        if frozen:
            return since == 0 and place == 0
        if self.refresh.every_steps is not None:
            return (since == 0 and place == 0) or step % self.refresh.every_steps == 0
        doubled = isinstance(self.order, ClusteredOrder) and epoch in self.order.double_at
        return place == 0 and (since % self.refresh.every == 0 or doubled)

    def refresh_count(self, epochs: int, steps: int = 1, *, frozen: bool = False) -> int:
        """Return how often that happens in a training, given its epochs and the steps of each."""
        if not (self.clusters or self.mines):
            return 0
        if frozen:
            return int(self.refresh.start < epochs)
        if self.refresh.every_steps is None:
            regular = range(self.refresh.start, epochs, self.refresh.every)
            doubled = set(self.order.double_at) if isinstance(self.order, ClusteredOrder) else set()
            return len(regular) + sum(self.refresh.start <= at < epochs and at not in regular for at in doubled)
        first, last = self.refresh.start * steps, epochs * steps - 1
        if first > last:
            return 0
        period = self.refresh.every_steps
        return last // period - first // period + 1

    def items(self, points: int, labels: int) -> int:
        """Return the length of an epoch: points, or labels if batches are made of labels."""
        return labels if self.by_label else points

    def epoch_items(self, split: Split) -> int:
        """Return the same for training rows; labels without a row do not count."""
        labels = np.count_nonzero(split.without(split.filter).targets.getnnz(axis=0)) if self.by_label else 0
        return self.items(len(split), int(labels))

    def steps(self, split: Split) -> int:
        """Return the number of batches of an epoch over training rows."""
        items = self.epoch_items(split)
        return math.ceil(items / self.size(items))

    def size(self, items: int) -> int:
        """Return the size of the largest batch of an epoch with this number of points or labels; batches are even.

        >>> AllBatching(batch_size=100).size(250), AllBatching(batch_size=100, min_batches=8).size(250)
        (84, 28)
        """
        size = min(self.batch_size, max(1, items // self.min_batches)) if self.min_batches else self.batch_size
        return math.ceil(items / math.ceil(items / size)) if items > size else size

    def builder(
        self,
        targets: csr_matrix,
        filter: NDArray[np.int64] | None,
        mined: NDArray[np.int32],
        lexical: NDArray[np.int32] = NO_LISTS,
    ) -> PoolBuilder | CandidateBuilder:
        """Return what builds the batches of an epoch.

        Args:
            targets: [N, L] relevance of the training rows.
            filter: [n, 2] pairs (row, label) that are neither right nor wrong, or None.
            mined: [N, top] hard negatives of each row; empty before the first refresh.
            lexical: [N, top] wrong labels of each row that share words with it; empty without ``bm25``.
        """
        from megalabel.batching.pool import PoolBuilder

        return PoolBuilder(targets, filter, all_labels=True, **self._loss_options())

    def log_q_estimate(
        self, targets: csr_matrix, filter: NDArray[np.int64] | None, batch_size: int
    ) -> EntryChance | RunningLogQ | None:
        """Return the estimate of each label's chance to be in a pool, or None without correction."""
        return None

    def pool_size(self, batch: int, labels: int, per_query: float) -> int:
        """Return the expected number of distinct labels in a step, for the plan of a run; an upper bound if clustered.

        Args:
            batch: queries in a step.
            labels: labels in all.
            per_query: positives of a query.
        """
        return labels

    def labels_per_query(self, batch: int, labels: int, per_query: float) -> int:
        """Return the expected number of labels that one query is scored against; arguments as in :meth:`pool_size`."""
        return self.pool_size(batch, labels, per_query)

    def _loss_options(self) -> dict[str, Any]:
        picked: Picker = All()
        if self.loss_positives != "all":
            picked = Some(1 if self.loss_positives == "one" else self.loss_positives)
        return {"loss_positives": picked, "unsampled": self.unsampled}


class AllBatching(Batching):
    """Every label is in every step."""

    labels: Literal["all"] = "all"


class HeadsBatching(Batching):
    """Each head takes its candidates from the scores of another head in the same step; the batch holds all targets."""

    labels: Literal["heads"] = "heads"


class SampledBatching(Batching):
    """Some positives and some negatives are in a step."""

    positives: PositiveSettings = SomePositives()
    negatives: NegativeSettings = NegativeSettings()

    @property
    def mining(self) -> NegativeSettings | None:
        """The settings of mined negatives; None if no negatives are mined."""
        return self.negatives if self.negatives.mined else None

    @property
    def bm25_top(self) -> int:
        """How many wrong labels of each query BM25 finds before training; 0 without such negatives."""
        return self.negatives.top if self.negatives.bm25 else 0


class PoolBatching(SampledBatching):
    """All queries of a batch are scored against one pool; see :class:`megalabel.batching.PoolBuilder`."""

    labels: Literal["pool"] = "pool"
    cap: PositiveInt | None = None  # labels in the pool at most
    fill: Literal["positives"] | None = None  # fill the pool to its cap with further positives
    min_gap: NonNegativeInt = 0  # negatives enter only if more than so many places are free below the cap
    log_q: bool = False  # correct the scores of negatives for how often a label is in a pool

    @model_validator(mode="after")
    def _check_pool(self) -> PoolBatching:
        negatives = self.negatives.per_query > 0 or self.negatives.uniform > 0
        self.require(self.cap is not None, "fill min_gap", "there is no cap")
        self.require(negatives, "min_gap", "there are no negatives beside the positives of the batch")
        self.require(self.positives.pick != "all", "fill", "all positives are in the pool already")
        self.require(not self.by_label, "positives", "a batch of labels has those labels as its positives")
        return self

    def builder(
        self,
        targets: csr_matrix,
        filter: NDArray[np.int64] | None,
        mined: NDArray[np.int32],
        lexical: NDArray[np.int32] = NO_LISTS,
    ) -> PoolBuilder | CandidateBuilder:
        """Return the builder of pools; arguments as in :meth:`Batching.builder`."""
        from megalabel.batching.pool import PoolBuilder

        negatives: list[Negatives] = []
        if self.mines and len(mined):
            negatives.append(Mined(mined, self.negatives.mined))
        if self.negatives.bm25 and len(lexical):
            negatives.append(Mined(lexical, self.negatives.bm25))
        if self.negatives.uniform:
            negatives.append(Uniform(self.negatives.uniform))
        return PoolBuilder(
            targets,
            filter,
            positives=self.positives.picker(),
            negatives=negatives,
            cap=self.cap,
            fill=self.fill,
            min_gap=self.min_gap,
            **self._loss_options(),
        )

    def log_q_estimate(
        self, targets: csr_matrix, filter: NDArray[np.int64] | None, batch_size: int
    ) -> EntryChance | RunningLogQ | None:
        """Return the exact chance where it has a formula, else a running count; None without ``log_q``."""
        from megalabel.batching.log_q import EntryChance, RunningLogQ
        from megalabel.batching.pool import PoolBuilder

        if not self.log_q:
            return None
        plain = self.order.kind == "shuffled" and not self.negatives.per_query and not self.negatives.uniform
        if not plain or self.cap is not None:
            return RunningLogQ(targets.shape[1])
        return EntryChance.from_targets(PoolBuilder(targets, filter).truth, self.positives.picker(), batch_size)

    def pool_size(self, batch: int, labels: int, per_query: float) -> int:
        """Return the expected number of distinct labels in a step; see :meth:`Batching.pool_size`."""
        each = 1.0 if self.by_label else self.positives.expected(per_query)
        positives = per_query if self.fill else each
        drawn = batch * (positives + self.negatives.per_query) + self.negatives.uniform
        return min(count_distinct(drawn, labels), labels if self.cap is None else self.cap)


class CandidateBatching(SampledBatching):
    """Each query is scored against a list of its own; see :class:`megalabel.batching.CandidateBuilder`."""

    labels: Literal["candidates"] = "candidates"

    @property
    def one_positive(self) -> bool:
        """Whether a loss never sees more than one positive of a query."""
        return super().one_positive or self.positives.pick == "one"

    @model_validator(mode="after")
    def _check_candidates(self) -> CandidateBatching:
        if self.by_label:
            raise ValueError("order is by_label, which needs labels: pool or all; candidates belong to queries")
        limit = {"one": 1, "some": getattr(self.positives, "count", 0), "all": math.inf}[self.positives.pick]
        seen = {"all": 0, "one": 1}.get(str(self.loss_positives), self.loss_positives)
        reason = f"at most {limit} of a query's positives are candidates"
        self.require(int(seen) < limit, "loss_positives", reason)
        return self

    def builder(
        self,
        targets: csr_matrix,
        filter: NDArray[np.int64] | None,
        mined: NDArray[np.int32],
        lexical: NDArray[np.int32] = NO_LISTS,
    ) -> PoolBuilder | CandidateBuilder:
        """Return the builder of candidates; arguments as in :meth:`Batching.builder`."""
        from megalabel.batching.candidates import CandidateBuilder

        return CandidateBuilder(
            targets,
            filter,
            positives=self.positives.picker(),
            lists=[
                (lists, count)
                for lists, count in ((mined, self.negatives.mined), (lexical, self.negatives.bm25))
                if count and len(lists)
            ],
            uniform=self.negatives.uniform,
            **self._loss_options(),
        )

    def pool_size(self, batch: int, labels: int, per_query: float) -> int:
        """Return the expected number of distinct labels in a step; see :meth:`Batching.pool_size`."""
        return count_distinct(batch * self._each(per_query), labels)

    def labels_per_query(self, batch: int, labels: int, per_query: float) -> int:
        """Return the expected length of a query's list; see :meth:`Batching.pool_size`."""
        return math.ceil(self._each(per_query))

    def _each(self, per_query: float) -> float:
        return self.positives.expected(per_query) + self.negatives.per_query + self.negatives.uniform


def count_distinct(drawn: float, labels: int) -> int:
    """Return the expected number of distinct labels in a number of draws, all labels equally likely."""
    return math.ceil(labels * -math.expm1(-drawn / labels))


BATCHING_KINDS: dict[str, type[Batching]] = {
    "pool": PoolBatching, "all": AllBatching, "candidates": CandidateBatching, "heads": HeadsBatching,
}  # fmt: skip

if TYPE_CHECKING:
    BatchingSettings = Batching
else:
    BatchingSettings = one_of(lambda: BATCHING_KINDS, key="labels", default="pool")
