"""Orders: which training rows come together in an epoch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import numpy as np

from megalabel.batching._cells import draw_one_each
from megalabel.batching._random import generator
from megalabel.errors import DataError, SettingError

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from scipy.sparse import csr_matrix

__all__ = ["ByLabel", "Clustered", "Order", "Shuffled"]


class Order(Protocol):
    """Says for every epoch which rows make which batch; the same epoch always gives the same batches."""

    def batches(self, epoch: int) -> list[NDArray[np.int64]]:
        """Return the rows [B] of each batch, or pairs [B, 2] of a row and the positive it stands for."""
        ...


@dataclass(frozen=True, eq=False)
class Shuffled:
    """Put the rows in a new random order every epoch and cut it into batches.

    Args:
        rows: [N] the rows to train on.
        batch_size: rows per batch; the last batch holds the rest.
        seed: with the epoch, decides the order.
        drop_last: leave out the last batch where it is smaller than all others.

    >>> [len(rows) for rows in Shuffled(np.arange(10), batch_size=4, seed=0).batches(epoch=1)]
    [4, 4, 2]
    """

    rows: NDArray[np.int64]
    batch_size: int
    seed: int
    drop_last: bool = False

    def __post_init__(self) -> None:
        _check(self.batch_size)

    def batches(self, epoch: int) -> list[NDArray[np.int64]]:
        """Return the batches of one epoch: every row once."""
        rows = generator(self.seed, "order", epoch).permutation(np.asarray(self.rows, dtype=np.int64))
        return _cut(rows, _every(len(rows), self.batch_size), self.drop_last)


@dataclass(frozen=True, eq=False)
class Clustered:
    """Make batches of whole clusters, in a new random order of clusters every epoch.

    A cluster as large as a batch is a batch (UniDEC, Kharbanda et al. 2024, arXiv
    2405.03714); smaller ones are put together as long as they fit (NGAME, Dahiya et al.,
    WSDM 2023, whose curriculum starts with clusters of one row and doubles them); larger
    ones are cut into equal parts. Rows of a cluster are each other's hard negatives.

    Args:
        assignment: [N] cluster of each row, from :func:`balanced_clusters`; rows with -1 stay out.
        batch_size: rows per batch at most.
        seed: with the epoch, decides the order.
        drop_last: leave out the last batch where it is smaller than all others.

    >>> order = Clustered(np.array([0, 1, 0, 1, 2, 2]), batch_size=4, seed=0)
    >>> [sorted(rows.tolist()) for rows in order.batches(epoch=0)]
    [[0, 1, 2, 3], [4, 5]]
    """

    assignment: NDArray[np.int64]
    batch_size: int
    seed: int
    drop_last: bool = False

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
        return _cut(rows, self._ends(np.bincount(turn)), self.drop_last)

    def _ends(self, sizes: NDArray[np.int64]) -> list[int]:
        """Return where each batch ends, given the sizes of the clusters in their order."""
        sizes = sizes[sizes > 0]
        parts = -(-sizes // self.batch_size)
        part = np.arange(parts.sum()) - np.repeat(np.cumsum(parts) - parts, parts)
        size, number = np.repeat(sizes, parts), np.repeat(parts, parts)
        bounds = np.repeat(np.cumsum(sizes) - sizes, parts) + (part + 1) * size // number
        ends: list[int] = []
        done = 0
        while done < sizes.sum():  # a part is never larger than a batch, so each turn gets on
            done = int(bounds[np.searchsorted(bounds, done + self.batch_size, side="right") - 1])
            ends.append(done)
        return ends


@dataclass(frozen=True, eq=False)
class ByLabel:
    """Make batches of labels, each with one of its training rows, so that rare labels come as often as common ones.

    SiameseXML (Dahiya et al., ICML 2021), stage 1. Every label with a training row comes
    once per epoch; its row is drawn in proportion to relevance.

    Args:
        targets: [N, L] relevance of the training rows.
        batch_size: labels per batch.
        seed: with the epoch, decides order and rows.
        drop_last: leave out the last batch where it is smaller than all others.

    >>> from scipy.sparse import csr_matrix
    >>> order = ByLabel(csr_matrix(np.array([[1.0, 1, 0, 0], [0, 1, 0, 1]])), batch_size=2, seed=0)
    >>> sorted(np.concatenate(order.batches(epoch=0))[:, 1].tolist())  # label 2 has no row
    [0, 1, 3]
    """

    targets: csr_matrix
    batch_size: int
    seed: int
    drop_last: bool = False

    def __post_init__(self) -> None:
        _check(self.batch_size)

    @cached_property
    def _by_label(self) -> csr_matrix:
        return self.targets.T.tocsr()

    def batches(self, epoch: int) -> list[NDArray[np.int64]]:
        """Return pairs [B, 2] of row and label for each batch: every label that has a row once."""
        rng = generator(self.seed, "order", epoch)
        matrix = self._by_label
        indptr = matrix.indptr.astype(np.int64)
        labels = np.flatnonzero(np.diff(indptr))
        if len(labels) == 0:
            raise DataError("no label has a training row, so there is nothing to order by label")
        starts = np.append(indptr[labels], indptr[-1])
        rows = matrix.indices[draw_one_each(starts, matrix.data, 1, rng)[:, 0]]
        pairs = rng.permutation(np.stack([rows.astype(np.int64), labels], axis=1))
        return _cut(pairs, _every(len(pairs), self.batch_size), self.drop_last)


def _check(batch_size: int) -> None:
    if batch_size < 1:
        raise SettingError(f"batch_size must be at least 1, not {batch_size}")


def _every(count: int, batch_size: int) -> list[int]:
    return [*range(batch_size, count, batch_size), count] if count else []


def _cut(rows: NDArray[np.int64], ends: list[int], drop_last: bool) -> list[NDArray[np.int64]]:
    batches = [rows[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    if drop_last and len(batches) > 1 and len(batches[-1]) < min(map(len, batches[:-1])):
        batches.pop()
    return batches
