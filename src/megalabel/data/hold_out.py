"""Hold points out of train by the rule that made the test set, so that validation tells the truth."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from megalabel.data.items import item_pairs, match_items
from megalabel.data.make_filters import own_pairs, reciprocal_pairs
from megalabel.errors import DataError, SettingError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from megalabel.data.dataset import Dataset, Split

__all__ = ["hold_out"]


def hold_out(
    data: Dataset, *, share: float = 0.1, most: int = 10_000, seed: int = 0, into: Literal["val", "test"] = "val"
) -> Dataset:
    """Move a seeded random part of train into ``val`` (or ``test``).

    Two promises hold for every set:

    - every label that had a train point keeps one;
    - where points and labels are the same items (symmetric sets), no held-out pair (a, b)
      has its reverse (b, a) left in train. A model that has seen one direction would be
      paid for the other, and validation would look far better than test.

    So the reverse pairs of held-out pairs leave train. Where that would take label a its
    last train point, one reverse pair (b, a) stays and the held-out row gives up b
    instead: b leaves its truth and joins its filter pairs. Rows that cannot be held out
    within these promises stay in train; train rows left without any label are set aside.
    ``Dataset.refit`` brings everything back.

    >>> from megalabel import load
    >>> data = hold_out(load("synthetic:points=300,labels=40"), share=0.1, seed=1)
    >>> len(data.val), len(data.refit().train)
    (24, 240)
    """
    if not 0 < share < 1:
        raise SettingError(f"share must lie between 0 and 1, not {share}")
    if into == "val" and data.val is not None:
        raise SettingError(f"{data.name} already has val rows", remedy="use them, or drop them first")
    size = min(max(1, round(share * len(data.train))), most)
    picker = _Picker(data)
    for row in np.random.default_rng(seed).permutation(len(data.train)):
        if len(picker.held) == size:
            break
        picker.try_row(int(row))
    if not picker.held:
        raise DataError(
            f"{data.name}: no train row can be held out, each carries the last train point of some label",
            remedy="give a val set of your own, or more train rows",
        )
    train, held = picker.result()
    if into == "test":
        return data.replace(train=train, test=held, counts=np.empty(0, dtype=np.int64), points=0)
    return data.replace(train=train, val=held, before=data)


class _Picker:
    """Row-by-row bookkeeping of what may still leave train."""

    def __init__(self, data: Dataset) -> None:
        self.data = data
        self.items = match_items(data.train, data.labels)
        targets = data.train.targets
        self.indptr, self.indices = targets.indptr.tolist(), targets.indices
        self.left = np.bincount(targets.indices, minlength=targets.shape[1])  # train points each label still has
        self.by_item = np.argsort(self.items, kind="stable")  # rows of item l: a slice of this
        self.starts = np.searchsorted(self.items[self.by_item], np.arange(targets.shape[1] + 1)).tolist()
        self.held: list[int] = []
        self.is_held = np.zeros(len(data.train), dtype=bool)
        self.gone: set[tuple[int, int]] = set()  # (row, label) cells that left train as reverse pairs
        self.given_up: list[tuple[int, int]] = []  # (row, label) cells a held row gave up

    def truth_of(self, row: int) -> list[int]:
        """Return all labels of the row."""
        labels: list[int] = self.indices[self.indptr[row] : self.indptr[row + 1]].tolist()
        return labels

    def labels_of(self, row: int) -> list[int]:
        """Return the labels the row still has in train."""
        return [b for b in self.truth_of(row) if (row, b) not in self.gone]

    def try_row(self, row: int) -> None:
        """Hold the row out if both promises allow it."""
        labels = self.labels_of(row)
        if not labels or self.left[labels].min() < 2:
            return
        item = int(self.items[row])
        truth = self.truth_of(row)
        reverse = self.reverse_rows(row, item, truth) if item >= 0 else {}
        leaving = sum(len(rows) for rows in reverse.values()) + (item in labels)
        if reverse and self.left[item] <= leaving:
            if len(truth) == 1:
                return
            given_up, _ = reverse.popitem()
            self.given_up.append((row, given_up))
        for rows in reverse.values():
            self.gone.update((other, item) for other in rows)
            self.left[item] -= len(rows)
        self.left[labels] -= 1
        self.held.append(row)
        self.is_held[row] = True

    def reverse_rows(self, own: int, item: int, truth: list[int]) -> dict[int, list[int]]:
        """Return, for each label b of the item's own row, the other train rows that are b and have the item."""
        reverse = {}
        for b in truth:
            rows = self.by_item[self.starts[b] : self.starts[b + 1]].tolist()
            reverse[b] = [r for r in rows if r != own and not self.is_held[r] and item in self.labels_of(r)]
        return {b: rows for b, rows in reverse.items() if rows}

    def result(self) -> tuple[Split, Split]:
        """Return what is left of train, and the held-out part."""
        train = self.data.train
        held = train.filtering(_pairs(self.given_up)).rows(np.array(self.held, dtype=np.int64))
        # A cell that left train as a reverse pair is still true for a row that was held out after it.
        rest = train.without(_pairs([cell for cell in self.gone if not self.is_held[cell[0]]]))
        rest = rest.rows(np.flatnonzero(~self.is_held & (np.diff(rest.targets.indptr) > 0)))
        return rest, self.like_test(held, rest)

    def like_test(self, held: Split, rest: Split) -> Split:
        """Filter reciprocal train pairs too if the test set does."""
        labels = self.data.labels
        own = own_pairs(match_items(self.data.test, labels))
        others = np.setdiff1d(self.data.test.filter @ [len(labels), 1], own @ [len(labels), 1])
        if len(others) == 0:
            return held
        reverse = item_pairs(rest, match_items(rest, labels)).T.tocsr()
        return held.filtering(reciprocal_pairs(match_items(held, labels), reverse))


def _pairs(cells: list[tuple[int, int]]) -> NDArray[np.int64]:
    return np.array(sorted(cells), dtype=np.int64).reshape(-1, 2)
