"""Hold points out of train by the rule that made the test set, so that validation predicts test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from megalabel.data.items import item_pairs, match_items
from megalabel.data.make_filters import own_pairs, reciprocal_pairs
from megalabel.errors import DataError, SettingError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from megalabel.data.dataset import Dataset, Split

__all__ = ["held_out_size", "hold_out"]

MAX_ROWS = 10_000  # default


def hold_out(
    data: Dataset, *, share: float = 0.1, max_rows: int = MAX_ROWS, seed: int = 0, into: Literal["val", "test"] = "val"
) -> Dataset:
    """Move a seeded random part of train into ``val`` (or ``test``).

    Two rules hold for every set:

    - every label that had a train point keeps one;
    - if points and labels are the same items (symmetric sets), no held-out pair (a, b) has
      its reverse (b, a) left in train. Otherwise a model would be rewarded for pairs it has
      seen in the other direction, and validation would look far better than test.

    So the reverse pairs of held-out pairs are removed from train. If label a would lose its
    last train point that way, one reverse pair (b, a) stays, and b moves from the truth of
    the held-out row to its filter pairs. Rows that cannot be held out under these rules stay
    in train; train rows left without a label are dropped. ``Dataset.refit`` restores everything.

    At most ``max_rows`` rows are held out.

    >>> from megalabel import load
    >>> data = hold_out(load("synthetic:points=300,labels=40"), share=0.1, seed=1)
    >>> len(data.val), len(data.refit().train)
    (24, 240)
    """
    if not 0 < share < 1:
        raise SettingError(f"share must lie between 0 and 1, not {share}")
    if into == "val" and data.val is not None:
        raise SettingError(f"{data.name} already has val rows", remedy="use them, or drop them first")
    size = held_out_size(len(data.train), share, max_rows)
    picker = _Picker(data)
    for row in np.random.default_rng(seed).permutation(len(data.train)):
        if len(picker.held) == size:
            break
        picker.try_row(int(row))
    if not picker.held:
        raise DataError(
            f"{data.name}: no train row can be held out, each has the only train point of some label",
            remedy="provide a val set, or more train rows",
        )
    train, held = picker.result()
    if into == "test":
        return data.replace(train=train, test=held, counts=np.empty(0, dtype=np.int64), points=0)
    return data.replace(train=train, val=held, before=data)


def held_out_size(rows: int, share: float, max_rows: int = MAX_ROWS) -> int:
    """Return how many of the train rows :func:`hold_out` tries to hold out."""
    return min(max(1, round(share * rows)), max_rows)


class _Picker:
    """Keeps track, row by row, of what may still be held out."""

    def __init__(self, data: Dataset) -> None:
        self.data = data
        self.items = match_items(data.train, data.labels)
        targets = data.train.targets
        self.indptr, self.indices = targets.indptr.tolist(), targets.indices
        self.left = np.bincount(targets.indices, minlength=targets.shape[1])  # train points left per label
        self.by_item = np.argsort(self.items, kind="stable")  # rows of item l: a slice of this
        self.starts = np.searchsorted(self.items[self.by_item], np.arange(targets.shape[1] + 1)).tolist()
        self.held: list[int] = []
        self.is_held = np.zeros(len(data.train), dtype=bool)
        self.gone: set[tuple[int, int]] = set()  # (row, label) cells removed from train as reverse pairs
        self.given_up: list[tuple[int, int]] = []  # (row, label) cells moved from truth to filter pairs

    def truth_of(self, row: int) -> list[int]:
        """Return all labels of the row."""
        labels: list[int] = self.indices[self.indptr[row] : self.indptr[row + 1]].tolist()
        return labels

    def labels_of(self, row: int) -> list[int]:
        """Return the labels the row still has in train."""
        return [b for b in self.truth_of(row) if (row, b) not in self.gone]

    def try_row(self, row: int) -> None:
        """Hold the row out if both rules allow it."""
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

    def reverse_rows(self, row: int, item: int, truth: list[int]) -> dict[int, list[int]]:
        """Return, for each label b of the row, the other train rows that are item b and have ``item`` as a label."""
        reverse = {}
        for b in truth:
            rows = self.by_item[self.starts[b] : self.starts[b + 1]].tolist()
            reverse[b] = [r for r in rows if r != row and not self.is_held[r] and item in self.labels_of(r)]
        return {b: rows for b, rows in reverse.items() if rows}

    def result(self) -> tuple[Split, Split]:
        """Return the remaining train rows and the held-out rows."""
        train = self.data.train
        held = train.filtering(_pairs(self.given_up)).rows(np.array(self.held, dtype=np.int64))
        # A cell removed as a reverse pair is still true for a row that was held out later.
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
