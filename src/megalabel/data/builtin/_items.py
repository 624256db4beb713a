"""Sets of items that point to items: make train and test, filter pairs and the label set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

from megalabel.data.dataset import Dataset, Labels, Split
from megalabel.data.hold_out import hold_out
from megalabel.data.make_filters import make_filters
from megalabel.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Items", "keep_labels", "split_items"]


@dataclass(frozen=True)
class Items:
    """Items with a text and a name, and pairs (a, b) of items; pairs of an item with itself are dropped."""

    texts: Sequence[str]  # [M]
    uids: Sequence[str]  # [M], unique
    pairs: NDArray[np.int64]  # [n, 2], (a, b): a points to b

    def __post_init__(self) -> None:
        pairs = self.pairs[self.pairs[:, 0] != self.pairs[:, 1]]
        object.__setattr__(self, "pairs", np.unique(pairs, axis=0))

    def labels(self, ids: NDArray[np.int64]) -> Labels:
        """Return the items ``ids`` as labels."""
        return Labels([self.texts[i] for i in ids], [self.uids[i] for i in ids])

    def split(self, pairs: NDArray[np.int64], labels: NDArray[np.int64]) -> Split:
        """Return the points of the sorted ``pairs``, over the items ``labels``."""
        points, starts = np.unique(pairs[:, 0], return_index=True)
        indptr = np.append(starts, len(pairs)).astype(np.int32)
        indices = np.searchsorted(labels, pairs[:, 1]).astype(np.int32)
        ones = np.ones(len(pairs), dtype=np.float32)
        targets = sparse.csr_matrix((ones, indices, indptr), shape=(len(points), len(labels)))
        return Split([self.texts[i] for i in points], targets, [self.uids[i] for i in points])


def keep_labels(items: Items, *, name: str, about: str, licence: str, share: float, seed: int) -> Dataset:
    """Return the set with every item that is pointed to as a label; test points are held out so that all keep a point.

    For sets where many pairs have no reverse: :func:`~megalabel.data.hold_out` finds enough
    points whose labels all keep a train point.
    """
    labels = np.unique(items.pairs[:, 1])
    points = items.split(items.pairs, labels)
    whole = Dataset(train=points, test=points, labels=items.labels(labels), name=name, about=about, licence=licence)
    return _filtered(hold_out(whole, share=share, seed=seed, max_rows=len(points), into="test"))


def split_items(
    items: Items, *, name: str, about: str, licence: str, share: float, seed: int, max_points: int | None = None
) -> Dataset:
    """Return the set with a plain random ``share`` of the points as test, at the cost of some labels.

    For sets where nearly every pair has its reverse: if every label had to keep a train
    point, a leaf (an item with one neighbour) could never be held out. Test items are
    entirely new: the reverse (b, a) of a test pair (a, b) is removed from train. Items that
    no train point points to, or more than ``max_points``, are not labels, neither in train
    nor in test; points left without a label are dropped.
    """
    size, pairs = len(items.uids), items.pairs
    points = np.unique(pairs[:, 0])
    is_test = np.zeros(size, dtype=bool)
    is_test[np.random.default_rng(seed).permutation(points)[: round(share * len(points))]] = True
    held, rest = pairs[is_test[pairs[:, 0]]], pairs[~is_test[pairs[:, 0]]]
    seen = rest[~np.isin(rest @ [size, 1], held @ [1, size])]
    counts = np.bincount(seen[:, 1], minlength=size)
    is_label = (counts > 0) & (counts <= (max_points or size))
    seen, held, labels = seen[is_label[seen[:, 1]]], held[is_label[held[:, 1]]], np.flatnonzero(is_label)
    if not len(held) or not len(seen):
        raise DataError(f"{name}: {len(points):,} points are too few for a train and a test split")
    whole = Dataset(
        train=items.split(seen, labels),
        test=items.split(held, labels),
        labels=items.labels(labels),
        name=name,
        about=about,
        licence=licence,
    )
    return _filtered(whole)


def _filtered(data: Dataset) -> Dataset:
    apart = set(data.labels.uids).isdisjoint([*data.train.uids, *data.test.uids])
    return data if apart else make_filters(data)
