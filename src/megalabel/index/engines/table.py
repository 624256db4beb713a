"""A table of labels in an engine: their vectors, texts and uids, and a number that grows with every change."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from threading import RLock
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt, ValidationError

from megalabel.errors import DataError, SettingError, WriteError
from megalabel.settings import first_error

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "FORMAT",
    "NAME",
    "Found",
    "LabelRow",
    "LabelTable",
    "NewTable",
    "Place",
    "TableCard",
    "check_name",
    "in_blocks",
]

FORMAT = 1
_BLOCK = 4096  # labels written at a time
NAME = re.compile(r"[a-z_][a-z0-9_]{0,49}")


@dataclass(frozen=True)
class Place:
    """Where a table is, without anything secret."""

    location: Mapping[str, str]  # host, port and database; or a folder
    table: str

    def __str__(self) -> str:
        return f"{self.table} in {' '.join(self.location.values())}"


class LabelRow(NamedTuple):
    """One label of a table."""

    id: int
    uid: str
    text: str
    removed: bool = False


class TableCard(BaseModel):
    """What a table knows about itself."""

    model_config = ConfigDict(strict=True, extra="ignore")
    format: PositiveInt
    model: str  # fingerprint of the model whose labels these are
    base: NonNegativeInt  # number of the last label change when the table was first written
    sequence: NonNegativeInt  # number of the last label change when it was last written whole
    dims: dict[str, PositiveInt] = Field(min_length=1)  # of each column of vectors


@dataclass(frozen=True)
class NewTable:
    """What a table is written from.

    Args:
        model: fingerprint of the model.
        sequence: number of the last label change.
        rows: all labels, in the order of their ids.
        vectors: by column, the vectors [L, d] of all labels.
        changed: ids of labels that changed since the training; others need not be read again to follow changes.
        settings: settings of the approximate index; see the kinds.
    """

    model: str
    sequence: int
    rows: Sequence[LabelRow]
    vectors: Mapping[str, NDArray[np.float32]]
    changed: NDArray[np.int64]
    settings: Mapping[str, int]

    @property
    def dims(self) -> dict[str, int]:
        """The dimension of each column."""
        return {name: part.shape[1] for name, part in self.vectors.items()}

    def sequences(self, before: Mapping[int, int]) -> NDArray[np.int64]:
        """Return for each label the number of its last change; ``before`` has those of an older table."""
        numbers = np.zeros(len(self.rows), dtype=np.int64)
        numbers[self.changed] = self.sequence
        known = [label for label in before if label < len(numbers)]
        numbers[known] = [before[label] for label in known]
        return numbers


class Found(NamedTuple):
    """The labels that an engine proposes for one query, and their vectors."""

    ids: NDArray[np.int64]  # [n]
    vectors: NDArray[np.float32]  # [n, d]


class LabelTable(ABC):
    """A table of labels that several processes search and change.

    Whatever is written becomes visible at once or not at all. ``size`` and ``removed`` are as of the last
    :meth:`note`. Calls from several threads wait for each other.

    Args:
        place: where it is.
        model: fingerprint of the model it must belong to; None before it is written.
        dims: the dimensions that its columns must have.
    """

    kind: ClassVar[str]

    def __init__(self, place: Place, model: str | None = None, dims: Mapping[str, int] | None = None) -> None:
        self.place, self.model, self.dims = place, model, dict(dims or {})
        self.size = 0  # labels, including removed ones
        self.removed = np.empty(0, dtype=np.int64)  # ascending
        self.lock = RLock()

    @classmethod
    @abstractmethod
    def at(cls, url: str | None, table: str) -> Self:
        """Return a table, which need not exist yet, at a URL that holds nothing secret."""

    @abstractmethod
    def exists(self) -> TableCard | None:
        """Return the card of the table, or None if there is no table yet."""

    @abstractmethod
    def create(self, new: NewTable) -> None:
        """Write the table in place of an older one, completely or not at all."""

    @abstractmethod
    def sequence(self) -> int:
        """Return the number of the last label change; this is quick."""

    @abstractmethod
    def changes(self, since: int) -> list[LabelRow]:
        """Return the labels that changed after change ``since``, as they are now, in the order of their ids."""

    @abstractmethod
    def changing(self) -> AbstractContextManager[None]:
        """Keep all other processes from changing labels."""

    @abstractmethod
    def put(self, sequence: int, rows: Sequence[LabelRow], vectors: Mapping[str, NDArray[np.float32]]) -> None:
        """Write new or renamed labels as change number ``sequence``; inside :meth:`changing`."""

    @abstractmethod
    def remove(self, sequence: int, ids: Sequence[int]) -> None:
        """Mark labels as removed, as change number ``sequence``; inside :meth:`changing`."""

    @abstractmethod
    def propose(
        self,
        column: str,
        queries: NDArray[np.float32],
        count: int,
        *,
        limit: int,
        without: Sequence[NDArray[np.int64]],
        effort: int,
        exact: bool,
    ) -> list[Found]:
        """Return about ``count`` of the best labels of each query [Q, d].

        Args:
            column: the column of vectors.
            queries: [Q, d].
            count: labels per query; fewer are returned if there are fewer, or the search missed some.
            limit: only ids below it.
            without: ids that each query leaves out.
            effort: of the approximate index; 0 if there is none.
            exact: compare with all labels.
        """

    @abstractmethod
    def vectors(self, column: str, ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the vectors [n, d] of labels, ids ascending; a label that is not there has zeros."""

    @abstractmethod
    def counts(self) -> tuple[int, NDArray[np.int64]]:
        """Return the number of labels and the ids of removed ones."""

    @abstractmethod
    def close(self) -> None:
        """Let go of connections; the next call opens them again."""

    def note(self) -> None:
        """Read how many labels there are and which are removed."""
        self.size, self.removed = self.counts()

    def check(self, card: TableCard | None) -> TableCard:
        """Return the card if it is that of the table we were told about; else raise a DataError."""
        again = "build the index again"
        if card is None:
            raise DataError(f"there is no table {self.place}", remedy=again)
        if card.format != FORMAT:
            raise DataError(f"the table {self.place} has format {card.format}, not {FORMAT}", remedy="update megalabel")
        if self.model is not None and card.model != self.model:
            what = f"the table {self.place} holds the labels of another model"
            raise DataError(what, remedy="build the index again with another --table")
        for column, dim in self.dims.items():
            there = card.dims.get(column)
            if there != dim:
                what = f"vectors {column} of the table {self.place} have dimension {there}, those of the model {dim}"
                raise DataError(what, remedy=again)
        return card

    def check_last(self, sequence: int, new: NewTable) -> None:
        """Raise a WriteError if labels have changed since what is to be written was read."""
        if sequence > new.sequence:
            what = f"labels of {self.place} changed while the index was built; nothing was changed"
            raise WriteError(what, remedy="build it again")

    def parse_card(self, document: Mapping[str, Any]) -> TableCard:
        """Return the card of a table, checked."""
        try:
            return TableCard.model_validate(document)
        except ValidationError as error:
            what = f"{self.place} is no table of megalabel ({first_error(error)})"
            raise DataError(what, remedy="choose another --table") from None


def check_name(table: str) -> str:
    """Return the name of a table, or raise a SettingError if an engine may not take it.

    >>> check_name("labels_2")
    'labels_2'
    """
    if not NAME.fullmatch(table):
        remedy = "use up to 50 small letters, digits and _, not a digit first"
        raise SettingError(f"{table[:60]!r} cannot be the name of a table", remedy=remedy)
    return table


def in_blocks(length: int) -> Iterator[slice]:
    """Yield the blocks in which so many rows are written.

    >>> list(in_blocks(5000))
    [slice(0, 4096, None), slice(4096, 5000, None)]
    """
    for start in range(0, length, _BLOCK):
        yield slice(start, min(length, start + _BLOCK))
