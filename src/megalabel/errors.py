"""Errors that a user can cause; each is one line that says what, where and what to do.

Everything a user may get wrong raises a :class:`MegalabelError`. The command line
prints it as one line on standard error and exits with code 2; any other exception is a
bug of ours and exits with code 1.
"""

from __future__ import annotations

from difflib import get_close_matches
from os import PathLike
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "DataError",
    "EngineError",
    "LostRankError",
    "MegalabelError",
    "MissingExtraError",
    "SettingError",
    "WriteError",
    "nearest",
]


class MegalabelError(Exception):
    """An error the user can fix: what is wrong, where, and what to do.

    >>> print(DataError("label id 9 is out of range, the set has 5 labels", path="trn.jsonl", line=3,
    ...                 remedy="number labels 0 to 4, in the order of lbl.jsonl"))
    trn.jsonl:3: label id 9 is out of range, the set has 5 labels; number labels 0 to 4, in the order of lbl.jsonl
    """

    def __init__(
        self,
        what: str,
        *,
        path: str | PathLike[str] | None = None,
        line: int | None = None,
        remedy: str | None = None,
    ) -> None:
        super().__init__(what)
        self.what = what
        self.path = path
        self.line = line
        self.remedy = remedy

    def __str__(self) -> str:
        where = "" if self.path is None else f"{self.path}:{self.line}: " if self.line is not None else f"{self.path}: "
        text = f"{where}{self.what}" if self.remedy is None else f"{where}{self.what}; {self.remedy}"
        return " ".join(text.split())


class DataError(MegalabelError):
    """A file or an object does not hold what it should."""


class SettingError(MegalabelError):
    """An option, a recipe key or an argument has no such name or no such value."""


class WriteError(MegalabelError):
    """Nothing was written: no space, no permission, or the target exists."""


class LostRankError(MegalabelError):
    """Another process of the run has died, cannot be reached or does not respond."""


class EngineError(MegalabelError):
    """A database that holds an index does not answer; nothing was changed, unless the message says otherwise."""


class MissingExtraError(MegalabelError):
    """An optional package is not installed.

    >>> print(MissingExtraError("pyarrow", extra="parquet", what="reading Parquet"))
    reading Parquet needs the package pyarrow; pip install 'megalabel[parquet]'
    """

    def __init__(self, package: str, *, extra: str, what: str) -> None:
        super().__init__(f"{what} needs the package {package}", remedy=f"pip install 'megalabel[{extra}]'")


def nearest(name: str, valid: Iterable[str]) -> str:
    """Return the remedy for an unknown name: the nearest valid one, or all of them.

    >>> nearest("los", ["loss", "encoder"])
    "did you mean 'loss'?"
    """
    valid = list(valid)
    close = get_close_matches(name, valid, n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}?" if close else f"choose one of: {', '.join(valid)}"
