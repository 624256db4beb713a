"""Shared by augmentations: the base class of their settings, checks, uids of new rows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from megalabel.data.texts import find_texts, pack_texts
from megalabel.errors import DataError, SettingError, nearest
from megalabel.settings import Settings

if TYPE_CHECKING:
    from megalabel.data.dataset import Dataset

__all__ = ["Augmentation", "TokenTable", "check_texts", "choose", "how_many", "name_rows"]

TokenTable: TypeAlias = Callable[[str], tuple[NDArray[np.float32], list[str]]]  # source -> vectors [V, d], tokens [V]


class Augmentation(Settings):
    """Base class of the settings of an augmentation."""

    kind: str
    share: Annotated[float, Field(gt=0, le=1)] = 1.0  # new rows, as a share of the train rows

    @abstractmethod
    def apply(
        self, data: Dataset, *, seed: int, token_table: TokenTable, say: Callable[[str], None] | None = None
    ) -> Dataset:
        """Return the data set with augmented train rows.

        Args:
            data: the data set; val, test and propensities do not change.
            seed: seed of all draws.
            token_table: returns the token vectors and tokens of a pretrained model; only synonyms calls it.
            say: called with lines on what is known of the new rows.
        """

    def count_rows(self, points: int, labels: int) -> int:
        """Return the number of train rows after augmenting a set of ``points`` train rows and ``labels`` labels."""
        del labels
        return points + round(self.share * points)


def choose(name: str, value: object, valid: tuple[str, ...]) -> None:
    """Raise a SettingError with the nearest valid word if ``value`` is not one of ``valid``."""
    if value not in valid:
        raise SettingError(f"{name} is {value!r}", remedy=nearest(str(value), valid))


def how_many(share: float, total: int) -> int:
    """Return how many of ``total`` a share in (0, 1] selects, at least one."""
    if not 0 < share <= 1:
        raise SettingError(f"share must be above 0 and at most 1, not {share}", remedy="1 takes all")
    return max(1, round(share * total))


def name_rows(kind: str, names: Iterable[object], known: Sequence[str]) -> Sequence[str]:
    """Return uids ``kind:name`` for new rows; an existing uid is an error."""
    uids = pack_texts(f"{kind}:{name}" for name in names)
    clash = np.flatnonzero(find_texts(uids, known) >= 0)
    if len(clash):
        first = uids[int(clash[0])]
        raise DataError(f"train already has a row {first!r}", remedy=f"apply {kind} once, to the original set")
    return uids


def check_texts(data: Dataset) -> None:
    """Refuse labels without text: they cannot be queries."""
    empty = [uid for uid, text in zip(data.labels.uids, data.labels.texts, strict=True) if not text.strip()]
    if empty:
        raise DataError(
            f"{data.name}: {len(empty):,} of {len(data.labels):,} labels have no text, the first is {empty[0]!r}",
            remedy="give every label a text, or train without label texts as queries",
        )
