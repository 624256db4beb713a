"""Settings of batching: which queries share a step, and which labels they are scored against.

Builders load when they are used: a recipe is read, and a run planned, without torch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, PositiveInt, field_validator, model_validator
from pydantic_core import PydanticCustomError

from megalabel.batching.negatives import Mined, Negatives, Uniform
from megalabel.batching.positives import All, One, Picker, Some
from megalabel.settings import NonNegativeInt, Settings, one_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from scipy.sparse import csr_matrix

    from megalabel.batching.candidates import CandidateBuilder
    from megalabel.batching.log_q import EntryChance, RunningLogQ
    from megalabel.batching.pool import PoolBuilder

__all__ = [
    "BATCHING_KINDS",
    "AllBatching",
    "Batching",
    "BatchingSettings",
    "CandidateBatching",
    "HeadsBatching",
    "NegativeSettings",
    "PoolBatching",
    "PositiveSettings",
    "Refresh",
    "SampledBatching",
    "SearchSettings",
]


class Search(Settings):
    """How the nearest labels are found; see :mod:`megalabel.index`. Null stands for the default of the index."""

    kind: str

    def options(self) -> dict[str, int]:
        """Return the settings that are not null."""
        return {name: value for name, value in self if name != "kind" and value is not None}


class ExactSearch(Search):
    """Compare with every label."""

    kind: Literal["exact"] = "exact"


class HnswSearch(Search):
    """Walk a graph of neighbours."""

    kind: Literal["hnsw"] = "hnsw"
    M: Annotated[int, Field(ge=2)] | None = None  # links per label
    ef_construction: PositiveInt | None = None
    ef_search: PositiveInt | None = None


class IvfSearch(Search):
    """Compare with the labels of the nearest inverted lists."""

    kind: Literal["ivf"] = "ivf"
    nlist: PositiveInt | None = None
    nprobe: PositiveInt | None = None
    pq: PositiveInt | None = None  # bytes per vector
    rerank: PositiveInt | None = None


class Positives(Settings):
    """Which positives of a query enter the step."""

    pick: str

    def picker(self) -> Picker:
        """Return the object that picks them."""
        raise NotImplementedError

    def expected(self, per_query: float) -> float:
        """Return how many are picked of a query that has ``per_query`` positives."""
        raise NotImplementedError


class OnePositive(Positives):
    """One, drawn anew in each step."""

    pick: Literal["one"] = "one"

    def picker(self) -> Picker:
        """Return the object that picks them."""
        return One()

    def expected(self, per_query: float) -> float:
        """Return 1."""
        return 1.0


class SomePositives(Positives):
    """At most ``count``, drawn anew in each step."""

    pick: Literal["some"] = "some"
    count: PositiveInt = 3
    replacement: bool = False

    def picker(self) -> Picker:
        """Return the object that picks them."""
        return Some(self.count, replacement=self.replacement)

    def expected(self, per_query: float) -> float:
        """Return the smaller of the two numbers; an upper bound if labels are drawn with replacement."""
        return min(self.count, per_query)


class AllPositives(Positives):
    """All of them."""

    pick: Literal["all"] = "all"

    def picker(self) -> Picker:
        """Return the object that picks them."""
        return All()

    def expected(self, per_query: float) -> float:
        """Return all."""
        return per_query


if TYPE_CHECKING:
    SearchSettings = Search
    PositiveSettings = Positives
else:
    SearchSettings = one_of(lambda: {"exact": ExactSearch, "hnsw": HnswSearch, "ivf": IvfSearch}, default="exact")
    PositiveSettings = one_of(
        lambda: {"one": OnePositive, "some": SomePositives, "all": AllPositives}, key="pick", default="some"
    )


class NegativeSettings(Settings):
    """Labels that enter the step beside the positives."""

    uniform: NonNegativeInt = 0  # drawn at random, per batch; with labels: candidates, per query
    mined: NonNegativeInt = 0  # per query, drawn from
    top: PositiveInt = 30  # the best-scored wrong labels of each query
    search: SearchSettings = ExactSearch()  # that finds them

    @model_validator(mode="after")
    def _check_effect(self) -> NegativeSettings:
        self.require(self.mined > 0, "top search", "mined is 0")
        return self


class Refresh(Settings):
    """When clusters and mined negatives are computed from the current vectors."""

    start: NonNegativeInt = 5  # epochs trained before the first refresh; 0: before the first epoch
    every: PositiveInt = 5  # epochs between two refreshes


class Batching(Settings):
    """What every kind of batching shares.

    ``loss_positives`` limits the positives that the loss sees: all, one, or at most a number, drawn anew in
    each step. ``unsampled`` says what becomes of the others: they are masked, or they count as negatives, as
    in the published softmax code of DEXML (pick-one-label, Menon et al. 2019).
    """

    renamed: ClassVar[Mapping[str, str]] = {"least_batches": "min_batches"}
    labels: str
    batch_size: PositiveInt = 1024
    min_batches: PositiveInt | None = None  # per epoch: a small set gets smaller batches
    order: Literal["shuffled", "clustered"] = "shuffled"
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
        self.require(self.clusters or self.mines, "refresh", "batches are shuffled and no negatives are mined")
        self.require(self.labels != "heads", "loss_positives", "candidates of heads hold all positives")
        self.require(self.loss_positives != "all", "unsampled", "loss_positives is all")
        return self

    @property
    def clusters(self) -> bool:
        """Whether batches are clusters of similar queries."""
        return self.order == "clustered"

    @property
    def mining(self) -> NegativeSettings | None:
        """The settings of mined negatives; None if no negatives are mined."""
        return None

    @property
    def mines(self) -> bool:
        """Whether hard negatives are mined."""
        return self.mining is not None

    def refresh_due(self, epoch: int) -> bool:
        """Return whether clusters and negatives are computed before this epoch, counted from 0."""
        since = epoch - self.refresh.start
        return (self.clusters or self.mines) and since >= 0 and since % self.refresh.every == 0

    def refresh_count(self, epochs: int) -> int:
        """Return how often that happens in a training of so many epochs."""
        return sum(self.refresh_due(epoch) for epoch in range(epochs))

    def size(self, points: int) -> int:
        """Return the batch size on a set of so many points."""
        if self.min_batches is None:
            return self.batch_size
        return min(self.batch_size, max(1, points // self.min_batches))

    def builder(
        self, targets: csr_matrix, filter: NDArray[np.int64] | None, mined: NDArray[np.int32]
    ) -> PoolBuilder | CandidateBuilder:
        """Return what builds the batches of an epoch.

        Args:
            targets: [N, L] relevance of the training rows.
            filter: [n, 2] pairs (row, label) that are neither right nor wrong, or None.
            mined: [N, top] hard negatives of each row; empty before the first refresh.
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


class PoolBatching(SampledBatching):
    """All queries of a batch are scored against one pool; see :class:`megalabel.batching.PoolBuilder`."""

    labels: Literal["pool"] = "pool"
    cap: PositiveInt | None = None  # labels in the pool at most
    fill: Literal["positives"] | None = None  # fill the pool to its cap with further positives
    min_gap: NonNegativeInt = 0  # negatives enter only if more than so many places are free below the cap
    log_q: bool = False  # correct the scores of negatives for how often a label is in a pool

    @model_validator(mode="after")
    def _check_pool(self) -> PoolBatching:
        negatives = self.negatives.mined > 0 or self.negatives.uniform > 0
        self.require(self.cap is not None, "fill min_gap", "there is no cap")
        self.require(negatives, "min_gap", "there are no negatives beside the positives of the batch")
        self.require(self.positives.pick != "all", "fill", "all positives are in the pool already")
        return self

    def builder(
        self, targets: csr_matrix, filter: NDArray[np.int64] | None, mined: NDArray[np.int32]
    ) -> PoolBuilder | CandidateBuilder:
        """Return the builder of pools; arguments as in :meth:`Batching.builder`."""
        from megalabel.batching.pool import PoolBuilder

        negatives: list[Negatives] = []
        if self.mines and len(mined):
            negatives.append(Mined(mined, self.negatives.mined))
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
        if self.clusters or self.mines or self.negatives.uniform or self.cap is not None:
            return RunningLogQ(targets.shape[1])
        return EntryChance.from_targets(PoolBuilder(targets, filter).truth, self.positives.picker(), batch_size)

    def pool_size(self, batch: int, labels: int, per_query: float) -> int:
        """Return the expected number of distinct labels in a step; see :meth:`Batching.pool_size`."""
        positives = per_query if self.fill else self.positives.expected(per_query)
        drawn = batch * (positives + self.negatives.mined) + self.negatives.uniform
        return min(_distinct(drawn, labels), labels if self.cap is None else self.cap)


class CandidateBatching(SampledBatching):
    """Each query is scored against a list of its own; see :class:`megalabel.batching.CandidateBuilder`."""

    labels: Literal["candidates"] = "candidates"

    def builder(
        self, targets: csr_matrix, filter: NDArray[np.int64] | None, mined: NDArray[np.int32]
    ) -> PoolBuilder | CandidateBuilder:
        """Return the builder of candidates; arguments as in :meth:`Batching.builder`."""
        from megalabel.batching.candidates import CandidateBuilder

        return CandidateBuilder(
            targets,
            filter,
            positives=self.positives.picker(),
            lists=mined if len(mined) else None,
            mined=self.negatives.mined,
            uniform=self.negatives.uniform,
            **self._loss_options(),
        )

    def pool_size(self, batch: int, labels: int, per_query: float) -> int:
        """Return the expected number of distinct labels in a step; see :meth:`Batching.pool_size`."""
        return _distinct(batch * self._each(per_query), labels)

    def labels_per_query(self, batch: int, labels: int, per_query: float) -> int:
        """Return the expected length of a query's list; see :meth:`Batching.pool_size`."""
        return math.ceil(self._each(per_query))

    def _each(self, per_query: float) -> float:
        return self.positives.expected(per_query) + self.negatives.mined + self.negatives.uniform


def _distinct(drawn: float, labels: int) -> int:
    """Return the expected number of distinct labels among so many draws, all labels equally likely."""
    return math.ceil(labels * -math.expm1(-drawn / labels))


BATCHING_KINDS: dict[str, type[Batching]] = {
    "pool": PoolBatching, "all": AllBatching, "candidates": CandidateBatching, "heads": HeadsBatching,
}  # fmt: skip

if TYPE_CHECKING:
    BatchingSettings = Batching
else:
    BatchingSettings = one_of(lambda: BATCHING_KINDS, key="labels", default="pool")
