"""Hold points out of train by the rule that made the test set, so that validation predicts test."""

from __future__ import annotations

from collections import deque
from itertools import product
from typing import TYPE_CHECKING, Literal

import numpy as np

from megalabel.data.items import item_pairs, match_items
from megalabel.data.make_filters import own_pairs, reciprocal_pairs
from megalabel.data.matrices import count_columns
from megalabel.errors import DataError, SettingError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from megalabel.data.dataset import Dataset, Split

__all__ = ["held_out_size", "hold_out", "hold_out_rows"]

MAX_ROWS = 10_000  # default


def hold_out(
    data: Dataset,
    *,
    share: float = 0.1,
    max_rows: int = MAX_ROWS,
    seed: int = 0,
    into: Literal["val", "test"] = "val",
    like_test: bool = True,
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

    These rules favour rows with few labels, and in symmetric sets rows that are labels
    themselves, so random rows may rank models in another order than test. With ``like_test``,
    validation rows of a symmetric set have the share of label texts and the mean number of labels
    per row that test has, as nearly as the rules allow; where both cannot be had, the number of
    labels comes first. These two numbers are all that is taken from test; which labels its rows
    have is never looked at. Without ``like_test``, in sets that are not symmetric, and for a test
    part, rows are random.

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
    order = np.random.default_rng(seed).permutation(len(data.train))
    if like_test and into == "val" and (picker.items >= 0).any():
        _pick_like_test(picker, order, size)
    else:
        _pick_in_order(picker, order, size)
    if not picker.held:
        raise DataError(
            f"{data.name}: no train row can be held out, each has the only train point of some label",
            remedy="provide a val set, or train on all rows: --set training.validation=0",
        )
    train, held, origin = picker.result()
    if into == "test":
        return data.replace(train=train, test=held, counts=np.empty(0, dtype=np.int64), points=0)
    return data.replace(train=train, val=held, before=data, origin=origin)


def hold_out_rows(data: Dataset, rows: Sequence[int]) -> Dataset:
    """Move these train rows into ``val``, in this order, as far as the rules of :func:`hold_out` allow.

    The set is returned as it is if none of them can be held out.

    >>> from megalabel import load
    >>> data = load("synthetic:points=300,labels=40")
    >>> texts = hold_out_rows(data, [5, 3]).val.texts
    >>> texts == [data.train.texts[5], data.train.texts[3]]
    True
    """
    picker = _Picker(data)
    for row in rows:
        picker.try_row(row)
    if not picker.held:
        return data
    train, held, origin = picker.result()
    return data.replace(train=train, val=held, before=data, origin=origin)


def held_out_size(rows: int, share: float, max_rows: int = MAX_ROWS) -> int:
    """Return how many of the train rows :func:`hold_out` tries to hold out."""
    return min(max(1, round(share * rows)), max_rows)


def _pick_in_order(picker: _Picker, order: NDArray[np.int64], size: int) -> None:
    for row in map(int, order):
        if len(picker.held) == size:
            break
        picker.try_row(row)


def _pick_like_test(picker: _Picker, order: NDArray[np.int64], size: int) -> None:
    """Hold out rows whose share of label texts and mean number of labels follow those of test.

    Rows are tried in the given order, but while the held-out rows have too few or too many label
    texts, by more than one, only rows that correct this are; and while they have too few or too
    many labels, by more than a row of test has on average, only rows with at least, or at most,
    that average. If no row corrects both, one that corrects the labels is tried, then one that
    corrects the label texts, then any.
    """
    test, train = picker.data.test, picker.data.train
    counts = np.diff(test.targets.indptr)
    mean = float(counts[counts > 0].mean())
    share = float(np.mean(match_items(test, picker.data.labels) >= 0))
    is_known: list[bool] = (picker.items >= 0).tolist()
    sizes: list[int] = np.sign(np.diff(train.targets.indptr) - mean).astype(int).tolist()  # beside the mean: -1, 0, 1
    both, any_size = (False, True), (-1, 0, 1)
    queues: dict[tuple[bool, int], deque[int]] = {kind: deque() for kind in product(both, any_size)}
    for place, row in enumerate(order.tolist()):
        queues[is_known[row], sizes[row]].append(place)
    labels = label_texts = 0  # of the rows held out
    while len(picker.held) < size:
        more_texts, more_labels = label_texts - share * len(picker.held), labels - mean * len(picker.held)
        known = both if abs(more_texts) <= 1 else (more_texts < 0,)
        fits = any_size if abs(more_labels) <= mean else (0, 1) if more_labels < 0 else (-1, 0)
        for kinds in (product(known, fits), product(both, fits), product(known, any_size), queues):
            ready = [queues[kind] for kind in kinds if queues[kind]]
            if ready:
                break
        else:
            return
        row = int(order[min(ready, key=lambda queue: queue[0]).popleft()])
        held = picker.try_row(row)
        labels += held
        label_texts += is_known[row] and held > 0


class _Picker:
    """Keeps track, row by row, of what may still be held out."""

    def __init__(self, data: Dataset) -> None:
        self.data = data
        self.items = match_items(data.train, data.labels)
        targets = data.train.targets
        self.indptr, self.indices = targets.indptr, targets.indices
        self.left = count_columns(targets)  # train points left per label
        self.by_item = np.argsort(self.items, kind="stable")  # rows of item l: a slice of this
        self.starts = np.searchsorted(self.items[self.by_item], np.arange(targets.shape[1] + 1))
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

    def try_row(self, row: int) -> int:
        """Hold the row out if both rules allow it; return how many labels it has as a held-out row, 0 if it stays."""
        labels = self.labels_of(row)
        if not labels or self.left[labels].min() < 2:
            return 0
        item = int(self.items[row])
        truth = self.truth_of(row)
        kept = len(truth)
        reverse = self.reverse_rows(row, item, truth) if item >= 0 else {}
        leaving = sum(len(rows) for rows in reverse.values()) + (item in labels)
        if reverse and self.left[item] <= leaving:
            if kept == 1:
                return 0
            given_up, _ = reverse.popitem()
            kept -= 1
            self.given_up.append((row, given_up))
        for rows in reverse.values():
            self.gone.update((other, item) for other in rows)
            self.left[item] -= len(rows)
        self.left[labels] -= 1
        self.held.append(row)
        self.is_held[row] = True
        return kept

    def reverse_rows(self, row: int, item: int, truth: list[int]) -> dict[int, list[int]]:
        """Return, for each label b of the row, the other train rows that are item b and have ``item`` as a label."""
        reverse = {}
        for b in truth:
            rows = self.by_item[self.starts[b] : self.starts[b + 1]].tolist()
            reverse[b] = [r for r in rows if r != row and not self.is_held[r] and item in self.labels_of(r)]
        return {b: rows for b, rows in reverse.items() if rows}

    def result(self) -> tuple[Split, Split, tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Return the remaining train rows, the held-out rows, and where both are among all rows."""
        train, chosen = self.data.train, np.array(self.held, dtype=np.int64)
        held = train.filtering(_pairs(self.given_up)).rows(chosen)
        # A cell removed as a reverse pair is still true for a row that was held out later.
        rest = train.without(_pairs([cell for cell in self.gone if not self.is_held[cell[0]]]))
        kept = np.flatnonzero(~self.is_held & (np.diff(rest.targets.indptr) > 0))
        rest = rest.rows(kept)
        return rest, self.like_test(held, rest), (kept, chosen)

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
