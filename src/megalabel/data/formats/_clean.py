"""What a table holds that no model should learn from: counted and said, left out where rows are ours to choose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from megalabel.data.problems import has, listed, rows, suspicious_labels
from megalabel.data.texts import find_texts, first_equal
from megalabel.errors import DataError

if TYPE_CHECKING:
    from pathlib import Path

    from megalabel.data.dataset import Labels, Split

__all__ = ["Findings", "Row"]

REMEDY = "mend it, or leave out --strict"


class Row(NamedTuple):
    """A row of a table: its place among the rows read, its line, its labels and their weights, if it has any."""

    place: int
    line: int
    ids: Sequence[int]
    weights: Any = None


class Findings:
    """Counts what is odd in the rows of tables; with ``strict`` the first of it is an error.

    Args:
        strict: raise a DataError instead of counting.
        choose: leave out rows without text or label, and merge rows with the same text; else they are only counted.
        unit: what the number of a row counts.
    """

    def __init__(self, strict: bool, choose: bool, unit: str = "line") -> None:
        self.strict, self.choose, self.unit = strict, choose, unit
        self.counts: dict[str, int] = {}
        self.first: dict[str, int] = {}

    def add(self, kind: str, path: Path | str, line: int, shown: str = "") -> None:
        """Count one finding."""
        if self.strict:
            what = {
                "label": f"duplicate label {shown} in one row",
                "missing": f"the label {shown} stands for a missing value",
                "empty": "this row has no text",
                "unlabelled": "this row has no label",
                "text": f"this row has the text of {self.unit} {shown}",
            }[kind]
            raise DataError(what, path=path, line=line, remedy=REMEDY)
        self.counts[kind] = self.counts.get(kind, 0) + 1
        self.first.setdefault(kind, line)

    def chosen(self, path: Path | str, found: Sequence[Row], texts: Sequence[str]) -> list[Row]:
        """Return the rows of a split to take."""
        same = first_equal(texts)
        again = np.bincount(same, minlength=len(same))[same] > 1
        taken: dict[int, int] = {}  # the first row with a text that others have too -> its place in the result
        out: list[Row] = []
        for row in found:
            text = texts[row.place]
            if not text.strip():
                self.add("empty", path, row.line)
            elif not row.ids:
                self.add("unlabelled", path, row.line)
            if self.choose and not (text.strip() and row.ids):
                continue
            other = taken.get(int(same[row.place])) if again[row.place] else None
            if text.strip() and other is not None:
                self.add("text", path, row.line, str(out[other].line))
                if self.choose and row.weights is None and out[other].weights is None:
                    out[other] = out[other]._replace(ids=list(dict.fromkeys([*out[other].ids, *row.ids])))
                    continue
            if again[row.place]:
                taken.setdefault(int(same[row.place]), len(out))
            out.append(row)
        return out

    def report(
        self,
        path: Path | str,
        splits: dict[str, Split],
        labels: Labels,
        missing: Sequence[str],
        say: Callable[[str], None],
    ) -> None:
        """Say what was found, a line for each kind."""
        done = {
            "empty": ("no text", "left out", "kept"),
            "unlabelled": ("no label", "left out", "kept"),
            "text": ("the text of an earlier one", "merged with it", "kept"),
        }
        for kind, (what, left_out, kept) in done.items():
            if count := self.counts.get(kind, 0):
                so = f"{'is' if count == 1 else 'are'} {left_out if self.choose else kept}"
                say(f"{path}: {rows(count)} {has(count)} {what} and {so} {self._where(kind)}")
        if count := self.counts.get("label", 0):
            say(f"{path}: {rows(count)} {has(count)} a label twice; it counts once {self._where('label')}")
        if count := self.counts.get("missing", 0):
            verb = "stands" if len(missing) == 1 else "stand"
            say(f"{path}: {listed(missing)} {verb} for no label, in {rows(count)} {self._where('missing')}")
        if odd := suspicious_labels(labels.texts):
            self._warn(path, f"labels that look odd: {listed(odd)}", say)
        for name, split in splits.items():
            if name == "train" or "train" not in splits:
                continue
            shared = int((find_texts(split.texts, splits["train"].texts) >= 0).sum())
            if shared:
                self._warn(path, f"{rows(shared)} of {name} {has(shared)} the text of a train row", say)

    def _where(self, kind: str) -> str:
        return f"(the first {'on line' if self.unit == 'line' else f'is {self.unit}'} {self.first[kind]})"

    def _warn(self, path: Path | str, what: str, say: Callable[[str], None]) -> None:
        if self.strict:
            raise DataError(what, path=path, remedy=REMEDY)
        say(f"{path}: {what}")
