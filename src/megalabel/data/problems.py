"""Problems of a data set that do not stop anyone, but that everyone should know."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from megalabel.data.texts import find_texts, first_equal
from megalabel.wording import counted

if TYPE_CHECKING:
    from megalabel.data.dataset import Dataset

__all__ = ["MISSING", "Problems", "find_problems", "suspicious_labels"]

MISSING = frozenset({"nan", "n/a", "#n/a", "null", "<na>"})  # what programs write for a missing value
_ODD = MISSING | {"none", "na", "nil", "undefined", "unknown", "-", "--", "?", "."}
_LISTED = 5  # labels named in a line


@dataclass(frozen=True, slots=True)
class Problems:
    """Rows and labels that deserve a second look, counted by split."""

    empty_texts: dict[str, int]
    unlabelled: dict[str, int]  # rows without a label
    repeated_texts: dict[str, int]  # rows with the text of an earlier row of the split
    shared_texts: dict[str, int]  # val and test rows whose text is a train text as well
    suspicious_labels: list[str]
    repeated_label_texts: int  # labels with the text of an earlier label

    def lines(self) -> list[str]:
        """Return one line for each problem there is."""
        found = [
            *(f"{rows(n)} of {part} {has(n)} no text" for part, n in self.empty_texts.items() if n),
            *(f"{rows(n)} of {part} {has(n)} no label" for part, n in self.unlabelled.items() if n),
            *(
                f"{rows(n)} of {part} {has(n)} the text of an earlier one"
                for part, n in self.repeated_texts.items()
                if n
            ),
            *(f"{rows(n)} of {part} {has(n)} the text of a train row" for part, n in self.shared_texts.items() if n),
        ]
        if self.suspicious_labels:
            found.append(f"labels that look odd: {listed(self.suspicious_labels)}")
        if self.repeated_label_texts:
            count = self.repeated_label_texts
            found.append(f"{counted(count, 'label')} {has(count)} the text of an earlier one")
        return found


def find_problems(data: Dataset) -> Problems:
    """Look for rows without text or label, texts that occur twice, and labels that may be none.

    >>> from megalabel import Dataset
    >>> rows = [("a", [0]), ("a", [1]), ("", [2])]
    >>> for line in find_problems(Dataset.from_lists(rows, [("a", [0])], ["x", "X", "nan"])).lines():
    ...     print(line)
    1 row of train has no text
    1 row of train has the text of an earlier one
    1 row of test has the text of a train row
    labels that look odd: 'x', 'X', 'nan'
    """
    parts = data.splits
    return Problems(
        empty_texts={name: sum(not text.strip() for text in part.texts) for name, part in parts.items()},
        unlabelled={name: int((np.diff(part.targets.indptr) == 0).sum()) for name, part in parts.items()},
        repeated_texts={name: _repeated(part.texts) for name, part in parts.items()},
        shared_texts={
            name: int((find_texts(part.texts, data.train.texts) >= 0).sum())
            for name, part in parts.items()
            if name != "train"
        },
        suspicious_labels=suspicious_labels(data.labels.texts),
        repeated_label_texts=_repeated(data.labels.texts),
    )


def _repeated(texts: Sequence[str]) -> int:
    """Return how many texts are equal to an earlier one."""
    first = first_equal(texts)
    return int((first != np.arange(len(first))).sum())


def suspicious_labels(texts: Sequence[str]) -> list[str]:
    """Return labels that are empty, look like a missing value, or differ from another in case or spaces only.

    >>> suspicious_labels(["Billing", "N/A", "billing ", "refund"])
    ['Billing', 'N/A', 'billing ']
    """
    forms: dict[str, set[str]] = {}
    for text in texts:
        forms.setdefault(_folded(text), set()).add(text)
    odd = (text for text in texts if not _folded(text) or _folded(text) in _ODD or len(forms[_folded(text)]) > 1)
    return list(dict.fromkeys(odd))


def _folded(text: str) -> str:
    """Return a text without differences in case and spaces."""
    return " ".join(text.casefold().split())


def rows(count: int) -> str:
    """Return the number of rows in words."""
    return counted(count, "row")


def has(count: int) -> str:
    """Return the verb for a number."""
    return "has" if count == 1 else "have"


def listed(names: Sequence[str]) -> str:
    """Return the first of some names."""
    more = f" and {len(names) - _LISTED:,} more" if len(names) > _LISTED else ""
    return ", ".join(repr(name[:60]) for name in names[:_LISTED]) + more
