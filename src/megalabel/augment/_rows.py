"""What the augmentations share: checks of settings, names for new rows, how many there are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from megalabel.errors import DataError, SettingError, nearest

if TYPE_CHECKING:
    from megalabel.data.dataset import Dataset

__all__ = ["check_texts", "choose", "how_many", "name_rows"]


def choose(name: str, value: object, valid: tuple[str, ...]) -> None:
    """Stop with the nearest valid word when ``value`` is not one of ``valid``."""
    if value not in valid:
        raise SettingError(f"{name} is {value!r}", remedy=nearest(str(value), valid))


def how_many(share: float, total: int) -> int:
    """Return the number of things a share in (0, 1] of ``total`` is, at least one."""
    if not 0 < share <= 1:
        raise SettingError(f"share must be above 0 and at most 1, not {share}", remedy="1 takes all")
    return max(1, round(share * total))


def name_rows(kind: str, names: Iterable[object], known: Sequence[str]) -> list[str]:
    """Return uids ``kind:name`` for new rows; rows of the same kind that are there already are refused."""
    uids = [f"{kind}:{name}" for name in names]
    clash = next(iter(set(uids).intersection(known)), None)
    if clash is not None:
        raise DataError(f"train already has a row {clash!r}", remedy=f"apply {kind} once, to the original set")
    return uids


def check_texts(data: Dataset) -> None:
    """Refuse labels without text: they have nothing to say as a query."""
    empty = [uid for uid, text in zip(data.labels.uids, data.labels.texts, strict=True) if not text.strip()]
    if empty:
        raise DataError(
            f"{data.name}: {len(empty):,} of {len(data.labels):,} labels have no text, the first is {empty[0]!r}",
            remedy="give every label a text, or train without label texts as queries",
        )
