"""The data set: immutable texts, label texts and relevance, with the constants its metrics need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from scipy import sparse

from megalabel.data.concepts import Concept
from megalabel.data.matrices import count_columns, map_blocks, row_blocks, stack_rows, take_rows
from megalabel.data.propensity_constants import checked_constants
from megalabel.data.texts import first_equal, join_texts, take_texts
from megalabel.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Dataset", "Labels", "Split"]


_NO_CONCEPT = Concept()
_Places: TypeAlias = "tuple[NDArray[np.int64], NDArray[np.int64]]"


def _no_pairs() -> NDArray[np.int64]:
    return np.empty((0, 2), dtype=np.int64)


def _no_rows() -> NDArray[np.int64]:
    return np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class Labels:
    """The label set: label l has a text and a unique, stable name (uid).

    ``concepts`` holds what a vocabulary says of some labels beyond that, by id.

    >>> from megalabel.data.concepts import Concept
    >>> labels = Labels(["animals", "cats; felines"], ["a", "c"], {1: Concept(name="cats", parents=(0,))})
    >>> labels.name(1), labels.parents(1), labels.parents(0)
    ('cats', (0,), ())
    """

    texts: Sequence[str]  # [L]
    uids: Sequence[str]  # [L], unique
    concepts: Mapping[int, Concept] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return len(self.texts)

    def concept(self, label: int) -> Concept:
        """Return what a vocabulary says of a label; an empty concept if there is none."""
        return self.concepts.get(label, _NO_CONCEPT)

    def name(self, label: int) -> str:
        """Return what to show of a label: its name in the vocabulary, else its text."""
        name = self.concept(label).name
        return self.texts[label] if name is None else name

    @cached_property
    def repeated(self) -> tuple[int, int] | None:
        """The first label with the uid of an earlier one, and that one; None if uids are unique."""
        first = first_equal(self.uids)
        again = np.flatnonzero(first != np.arange(len(first)))
        return (int(again[0]), int(first[again[0]])) if len(again) else None

    @property
    def names(self) -> Sequence[str]:
        """What to show of every label."""
        return [self.name(label) for label in range(len(self))] if self.concepts else self.texts

    def parents(self, label: int) -> tuple[int, ...]:
        """Return the ids of the next broader labels."""
        return self.concept(label).parents


@dataclass(frozen=True)
class Split:
    """Points with their relevant labels.

    ``filter`` lists (row, label) pairs that count neither as right nor as wrong: they are
    removed from a ranking before the cut to k (for example an item recommended to itself).
    """

    texts: Sequence[str]  # [N]
    targets: sparse.csr_matrix  # [N, L] float32, values in (0, 1]
    uids: Sequence[str]  # [N]
    filter: NDArray[np.int64] = field(default_factory=_no_pairs)  # [n, 2]

    def __len__(self) -> int:
        return len(self.texts)

    def excluded(self) -> sparse.csr_matrix:
        """Return the filter pairs as a matrix [N, L], for an index to leave out."""
        ones = np.ones(len(self.filter), dtype=np.float32)
        return sparse.csr_matrix((ones, (self.filter[:, 0], self.filter[:, 1])), shape=self.targets.shape)

    def filtered_relevant(self) -> int:
        """Return how many filter pairs are relevant as well: they can never be right."""
        return int(self.targets.multiply(self.excluded() > 0).nnz) if len(self.filter) else 0

    def rows(self, keep: NDArray[np.int64]) -> Split:
        """Return the points ``keep``, in that order, with their filter pairs."""
        keep = np.asarray(keep, dtype=np.int64)
        position = np.full(len(self), -1, dtype=np.int64)
        position[keep] = np.arange(len(keep))
        pairs = self.filter[position[self.filter[:, 0]] >= 0]
        return Split(
            take_texts(self.texts, keep),
            take_rows(self.targets, keep),
            take_texts(self.uids, keep),
            np.stack([position[pairs[:, 0]], pairs[:, 1]], axis=1),
        )

    def without(self, pairs: NDArray[np.int64]) -> Split:
        """Return the same points with the (row, label) ``pairs`` no longer relevant."""
        if len(pairs) == 0:
            return self
        ones = np.ones(len(pairs), dtype=np.float32)
        drop: Any = sparse.csr_matrix((ones, (pairs[:, 0], pairs[:, 1])), shape=self.targets.shape).astype(bool)

        def change(targets: sparse.csr_matrix, rows: slice) -> sparse.csr_matrix:
            left: sparse.csr_matrix = targets - targets.multiply(drop[rows]).tocsr()
            left.eliminate_zeros()
            return left

        return replace(self, targets=map_blocks(change, self.targets))

    def filtering(self, pairs: NDArray[np.int64]) -> Split:
        """Return the same points with more filter ``pairs``, which also leave the targets."""
        return replace(self.without(pairs), filter=np.unique(np.concatenate([self.filter, pairs]), axis=0))

    def __add__(self, other: Split) -> Split:
        """Return the points of both, one after the other."""
        shifted = other.filter + np.array([[len(self), 0]], dtype=np.int64)
        parts = [self.targets, other.targets]
        blocks = (part[rows] for part in parts for rows in row_blocks(part))
        return Split(
            join_texts(self.texts, other.texts),
            stack_rows(blocks, self.targets.shape[1], np.result_type(*(part.dtype for part in parts))),
            join_texts(self.uids, other.uids),
            np.concatenate([self.filter, shifted]),
        )


@dataclass(frozen=True)
class Dataset:
    """Train and test points over one label set; every transform returns a new one.

    ``counts`` and ``points`` (label frequency and number of rows of the original train +
    val) feed the propensities. They are counted once, when the set is first built, and
    pass unchanged through hold-outs and augmentation, so that every model of a study
    is measured with the same propensities.

    >>> data = Dataset.from_lists(
    ...     train=[("red shoes", [0]), ("blue shoes", [0, 1])], test=[("shoes", [0])], labels=["shoe", "blue"])
    >>> data.counts.tolist(), data.points
    ([2, 1], 2)
    """

    train: Split
    test: Split
    labels: Labels
    val: Split | None = None
    name: str = "data"
    about: str = ""
    licence: str = ""
    propensity: tuple[float, float] = (0.55, 1.5)  # A, B
    counts: NDArray[np.int64] = field(default_factory=_no_rows)  # [L], filled when empty
    points: int = 0  # filled when 0
    sources: Mapping[str, str] = field(default_factory=dict, repr=False)  # package it was made from -> version
    test_only: bool = False  # rows to measure on: there are no train rows, and no frequencies
    before: Dataset | None = field(default=None, repr=False)  # the set a validation part was held out of
    origin: _Places = field(default=(_no_rows(), _no_rows()), repr=False)  # its rows that are train now, and val

    def __post_init__(self) -> None:
        for title, split in self.splits.items():
            _check(title, split, len(self.labels))
        if len(self.labels.uids) != len(self.labels):
            raise DataError(f"{len(self.labels)} label texts but {len(self.labels.uids)} label uids")
        if self.labels.repeated is not None:
            duplicate = self.labels.uids[self.labels.repeated[0]]
            raise DataError(f"duplicate label uid {duplicate!r}", remedy="give every label its own uid")
        object.__setattr__(self, "propensity", checked_constants(*self.propensity))
        if self.points == 0:
            parts = [self.train] if self.val is None else [self.train, self.val]
            counts = sum(count_columns(part.targets) for part in parts)
            object.__setattr__(self, "counts", np.asarray(counts, dtype=np.int64))
            object.__setattr__(self, "points", sum(len(part) for part in parts))

    @property
    def splits(self) -> dict[str, Split]:
        """Train, val (if any) and test by name."""
        parts = {"train": self.train, "val": self.val, "test": self.test}
        if self.test_only and not len(self.train):
            del parts["train"]
        return {name: part for name, part in parts.items() if part is not None}

    def split(self, name: str) -> Split:
        """Return the split of that name; an unknown name is an error that lists the valid ones."""
        if name not in self.splits:
            raise DataError(f"{self.name} has no {name} rows", remedy=f"choose one of: {', '.join(self.splits)}")
        return self.splits[name]

    def replace(self, **changes: object) -> Dataset:
        """Return a copy with some fields changed; the propensity counts stay those of the original."""
        return replace(self, **changes)  # type: ignore[arg-type]

    def refit(self) -> Dataset:
        """Return the set to train on once everything is selected: val goes back into train.

        A validation part that was held out returns exactly to where it came from,
        including the reverse pairs that had left train.
        """
        if self.before is not None:
            return self.before
        return self if self.val is None else self.replace(train=self.train + self.val, val=None)

    def refit_places(self) -> _Places:
        """Return where the train rows and the val rows are among the train rows of :meth:`refit`.

        >>> from megalabel import load
        >>> from megalabel.data.hold_out import hold_out
        >>> data = hold_out(load("synthetic:points=300,labels=40"))
        >>> [data.refit().train.texts[row] for row in data.refit_places()[1]] == list(data.val.texts)
        True
        """
        if self.before is not None:
            return self.origin
        return np.arange(len(self.train)), len(self.train) + np.arange(0 if self.val is None else len(self.val))

    @classmethod
    def from_lists(
        cls,
        train: Sequence[tuple[str, Sequence[int]]],
        test: Sequence[tuple[str, Sequence[int]]],
        labels: Sequence[str],
        *,
        val: Sequence[tuple[str, Sequence[int]]] | None = None,
        name: str = "data",
    ) -> Dataset:
        """Build a set from plain (text, label ids) pairs and label texts."""

        def split(prefix: str, rows: Sequence[tuple[str, Sequence[int]]]) -> Split:
            indptr = np.cumsum([0, *(len(ids) for _, ids in rows)])
            indices = np.fromiter((i for _, ids in rows for i in ids), dtype=np.int64)
            if indices.size and (indices.min() < 0 or indices.max() >= len(labels)):
                raise DataError(f"a label id of {prefix} is outside 0..{len(labels) - 1}")
            ones = np.ones(len(indices), dtype=np.float32)
            matrix = sparse.csr_matrix((ones, indices, indptr), shape=(len(rows), len(labels)))
            matrix.sum_duplicates()
            np.minimum(matrix.data, 1.0, out=matrix.data)
            return Split([text for text, _ in rows], matrix, [f"{prefix}-{i}" for i in range(len(rows))])

        return cls(
            train=split("trn", train),
            test=split("tst", test),
            val=None if val is None else split("val", val),
            labels=Labels(list(labels), [f"lbl-{i}" for i in range(len(labels))]),
            name=name,
        )


def _check(title: str, split: Split, labels: int) -> None:
    rows, columns = split.targets.shape
    if rows != len(split.texts) or len(split.uids) != len(split.texts):
        raise DataError(f"{title}: {len(split.texts)} texts, {len(split.uids)} uids, {rows} rows of targets")
    if columns != labels:
        raise DataError(f"{title}: targets have {columns} columns but there are {labels} labels")
    if rows == 0:
        raise DataError(f"there are no {title} rows", remedy="add some, or hold some out: --test-share 0.1")
    if split.targets.nnz == 0:
        raise DataError(f"{title} has no positives: no row has a label")
    values = split.targets.data  # least and largest take no memory, and are NaN if any is
    if not (values.min() > 0 and values.max() <= 1):
        raise DataError(f"{title}: target values must lie in (0, 1]")
    pairs = split.filter
    if len(pairs) and (pairs.min() < 0 or pairs[:, 0].max() >= rows or pairs[:, 1].max() >= labels):
        raise DataError(f"{title}: a filter pair points outside the {rows} x {labels} matrix")
