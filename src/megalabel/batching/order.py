"""Orders: which training rows form a batch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np
from pydantic import PositiveInt, model_validator

from megalabel.batching._random import generator
from megalabel.errors import DataError, SettingError
from megalabel.settings import NonNegative, Settings, one_of

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from scipy.sparse import csr_matrix

__all__ = [
    "ByLabel",
    "ByLabelOrder",
    "Clustered",
    "ClusteredOrder",
    "Order",
    "OrderSettings",
    "Shuffled",
    "ShuffledOrder",
]


class AnyOrder(Settings):
    """Which queries share a step."""

    kind: str


class ShuffledOrder(AnyOrder):
    """Any, in a new random order every epoch; see :class:`Shuffled`."""

    kind: Literal["shuffled"] = "shuffled"


class ClusteredOrder(AnyOrder):
    """Similar ones, from clusters made every few epochs; see :class:`Clustered`.

    Clusters smaller than a batch may grow: NGAME (Dahiya et al., WSDM 2023) begins with single queries, which is a
    shuffled order, and doubles the clusters, so that negatives become harder as training goes on.
    """

    kind: Literal["clustered"] = "clustered"
    size: PositiveInt | None = None  # queries of a cluster at first; None: as many as a batch has
    double_at: tuple[PositiveInt, ...] = ()  # numbers of epochs after which clusters are rebuilt at twice the size

    @model_validator(mode="after")
    def _check(self) -> ClusteredOrder:
        self.require(self.size is not None, "double_at", "clusters are as large as a batch")
        if any(second <= first for first, second in pairwise(self.double_at)):
            raise ValueError("double_at must list epochs in ascending order")
        return self

    def size_at(self, epoch: int, batch_size: int) -> int:
        """Return how many queries a cluster has in this epoch, counted from 0; never more than a batch.

        >>> order = ClusteredOrder(size=4, double_at=(10, 25))
        >>> [order.size_at(epoch, 1600) for epoch in (0, 9, 10, 24, 25)]
        [4, 4, 8, 8, 16]
        """
        if self.size is None:
            return batch_size
        doubled = sum(start <= epoch for start in self.double_at)
        return min(batch_size, self.size << doubled)


class ByLabelOrder(AnyOrder):
    """One for each label of a batch of labels; see :class:`ByLabel`."""

    kind: Literal["by_label"] = "by_label"
    power: NonNegative = 0.45  # a label is drawn in proportion to (its training rows)^power
    replacement: bool = True  # False: every label comes once per epoch

    @model_validator(mode="after")
    def _check(self) -> ByLabelOrder:
        self.require(self.replacement, "power", "without replacement every label comes once")
        return self


if TYPE_CHECKING:
    OrderSettings = AnyOrder
else:
    OrderSettings = one_of(
        lambda: {"shuffled": ShuffledOrder, "clustered": ClusteredOrder, "by_label": ByLabelOrder}, default="shuffled"
    )


class Order(Protocol):
    """Returns the batches of every epoch; the same epoch always gives the same batches."""

    def batches(self, epoch: int) -> list[NDArray[np.int64]]:
        """Return the rows [B] of each batch, or [B, 3]: a row, one of its positives, another row of that positive."""
        ...


@dataclass(frozen=True, eq=False)
class Shuffled:
    """Put the rows in a new random order every epoch and cut it into even batches.

    Args:
        rows: [N] the rows to train on.
        batch_size: largest number of rows per batch.
        seed: seed of the order, together with the epoch.

    >>> [len(rows) for rows in Shuffled(np.arange(10), batch_size=4, seed=0).batches(epoch=1)]
    [4, 3, 3]
    """

    rows: NDArray[np.int64]
    batch_size: int
    seed: int

    def __post_init__(self) -> None:
        _check(self.batch_size)

    def batches(self, epoch: int) -> list[NDArray[np.int64]]:
        """Return the batches of one epoch: every row once."""
        rows = generator(self.seed, "order", epoch).permutation(np.asarray(self.rows, dtype=np.int64))
        return _even(rows, self.batch_size)


@dataclass(frozen=True, eq=False)
class Clustered:
    """Make batches of whole clusters, in a new random order of clusters every epoch.

    Clusters as large as a batch are the batches (UniDEC, Kharbanda et al. 2024, arXiv
    2405.03714); smaller ones are put one after another (NGAME, Dahiya et al.,
    WSDM 2023, whose curriculum starts with clusters of one row and doubles them). Batches
    are even: one ends where a cluster ends if that makes it no more than one row larger or
    smaller than the others, else within a cluster, whose rows then go into two batches.
    Rows of a cluster are each other's hard negatives.

    Args:
        assignment: [N] cluster of each row, from :func:`balanced_clusters`; rows with -1 are left out.
        batch_size: largest number of rows per batch.
        seed: seed of the order, together with the epoch.

    >>> order = Clustered(np.array([0, 1, 0, 1, 2, 2]), batch_size=2, seed=0)
    >>> sorted(sorted(rows.tolist()) for rows in order.batches(epoch=0))
    [[0, 2], [1, 3], [4, 5]]
    """

    assignment: NDArray[np.int64]
    batch_size: int
    seed: int

    def __post_init__(self) -> None:
        _check(self.batch_size)

    def batches(self, epoch: int) -> list[NDArray[np.int64]]:
        """Return the batches of one epoch: every row with a cluster once."""
        rng = generator(self.seed, "order", epoch)
        clusters = np.asarray(self.assignment, dtype=np.int64)
        rows = rng.permutation(np.flatnonzero(clusters >= 0))
        turns = rng.permutation(clusters.max(initial=-1) + 1)  # turns[c]: when cluster c comes
        turn = turns[clusters[rows]]
        rows = rows[np.argsort(turn, kind="stable")]
        return np.split(rows, self._cuts(np.cumsum(np.bincount(turn)))) if len(rows) else []

    def _cuts(self, cluster_ends: NDArray[np.int64]) -> list[int]:
        """Return where one batch ends and the next begins, given where the clusters end."""
        rows = int(cluster_ends[-1])
        batches, ends = _count(rows, self.batch_size), {*cluster_ends.tolist()}
        small, larger = divmod(rows, batches)  # sizes are small and small + 1, the latter so many times
        cuts: list[int] = []
        done = 0
        for left in range(batches, 1, -1):
            take_large = larger == left or (larger > 0 and (done + small + 1 in ends or done + small not in ends))
            larger -= take_large
            done += small + take_large
            cuts.append(done)
        return cuts


@dataclass(frozen=True, eq=False)
class ByLabel:
    """Make batches of labels, each with one of its training rows.

    SiameseXML (Dahiya et al., ICML 2021), stage 1. Labels are drawn with replacement, in proportion to
    (number of their rows)^``power``: with 0 all labels are equally likely, with 1 they are drawn as often as they
    occur. The number of draws per epoch is the number of labels with a row. Without replacement, each of these is
    drawn once. The row is drawn in proportion to relevance, and so is its partner, another row of the same label;
    if the label has only one row, that row is its own partner.

    Args:
        targets: [N, L] relevance of the training rows.
        batch_size: largest number of labels per batch; batches are even.
        seed: seed of labels and rows, together with the epoch.
        power: exponent of the number of rows, for draws with replacement.
        replacement: draw labels with replacement.

    >>> from scipy.sparse import csr_matrix
    >>> targets = csr_matrix(np.array([[1.0, 1, 0, 0], [0, 1, 0, 1]]))
    >>> order = ByLabel(targets, batch_size=2, seed=0, replacement=False)
    >>> sorted(np.concatenate(order.batches(epoch=0))[:, 1].tolist())  # label 2 has no row
    [0, 1, 3]
    """

    targets: csr_matrix
    batch_size: int
    seed: int
    power: float = 0.45
    replacement: bool = True

    def __post_init__(self) -> None:
        _check(self.batch_size)

    @cached_property
    def _by_label(self) -> csr_matrix:
        return self.targets.T.tocsr()

    @cached_property
    def _mass(self) -> NDArray[np.float64]:
        """Relevance summed up over the cells before each, label by label [nnz + 1]."""
        return np.concatenate([[0.0], np.cumsum(self._by_label.data, dtype=np.float64)])

    def batches(self, epoch: int) -> list[NDArray[np.int64]]:
        """Return row, label and partner [B, 3] for each batch."""
        rng = generator(self.seed, "order", epoch)
        labels = self._labels(rng)
        first = self._draw(labels, None, rng)
        second = self._draw(labels, first, rng)
        rows = self._by_label.indices.astype(np.int64)
        drawn = np.stack([rows[first], labels, rows[second]], axis=1)
        return _even(drawn, self.batch_size)

    def _labels(self, rng: np.random.Generator) -> NDArray[np.int64]:
        counts = np.diff(self._by_label.indptr)
        labels = np.flatnonzero(counts)
        if len(labels) == 0:
            raise DataError("no label has a training row, so there is nothing to order by label")
        if not self.replacement:
            return rng.permutation(labels)
        chances = counts[labels].astype(np.float64) ** self.power
        drawn: NDArray[np.int64] = rng.choice(labels, size=len(labels), p=chances / chances.sum())
        return drawn

    def _draw(
        self, labels: NDArray[np.int64], others: NDArray[np.int64] | None, rng: np.random.Generator
    ) -> NDArray[np.int64]:
        """Return a cell [n] of each label in proportion to relevance; if it has several, not that of ``others``."""
        mass, indptr = self._mass, self._by_label.indptr.astype(np.int64)
        first, last = indptr[labels], indptr[labels + 1] - 1
        low, high = mass[first], mass[last + 1]
        point = rng.random(len(labels))
        if others is None:
            point = low + point * (high - low)
        else:  # the stretch of the other cell is left out
            gone = np.where(last > first, mass[others + 1] - mass[others], 0.0)
            point = low + point * (high - low - gone)
            point += np.where(point >= mass[others], gone, 0.0)
        cells: NDArray[np.int64] = np.searchsorted(mass, point, side="right") - 1
        return np.clip(cells, first, last)


def _check(batch_size: int) -> None:
    if batch_size < 1:
        raise SettingError(f"batch_size must be at least 1, not {batch_size}")


def _even(rows: NDArray[np.int64], batch_size: int) -> list[NDArray[np.int64]]:
    """Cut rows [N, ...] into as few batches as possible, of sizes that differ by at most one."""
    return np.array_split(rows, _count(len(rows), batch_size)) if len(rows) else []


def _count(rows: int, batch_size: int) -> int:
    """Return the smallest number of batches for so many rows."""
    return -(-rows // batch_size)
