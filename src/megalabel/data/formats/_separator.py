"""What separates the labels of a cell, by the evidence of all cells of the column.

A mark that separates labels leaves pieces that occur in other cells too; a mark inside
a name ("Bolivia, Plurinational State of") leaves pieces that occur nowhere else. A comma
followed by a space is common in names, so it needs more: pieces that are first in one
cell and last or alone in another. Where most cells have a | or a ; it separates. Cells
count once, however often they are repeated.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain, pairwise

__all__ = ["GUESSED", "AmbiguousError", "choose_separator", "split_items"]

GUESSED = ("|", ";", ",")
RARE = 0.2  # a mark in fewer of the cells, without evidence that it separates, is part of a name
RECURRING = 0.25  # of the pieces, so many occur in other cells if | or ; or a tight comma separates them
MIXED = 0.5  # of the cells with ", ", this share has a piece in another position elsewhere
CHANCE = 1 / 3  # evidence up to this share may be chance: "Congo" beside "Congo, Democratic Republic of the"

_SEPARATOR, _NAME, _UNCLEAR = "separator", "part of a name", "unclear"


class AmbiguousError(ValueError):
    """Several ways to read the cells are plausible; ``marks`` might separate labels, as in ``example``."""

    def __init__(self, marks: Sequence[str], example: str) -> None:
        self.marks = tuple(marks)
        self.example = example
        super().__init__(example)


def split_items(cell: str, separator: str | None) -> list[str]:
    """Return the items of a cell without spaces around them; quotes keep a separator inside an item.

    >>> split_items('red; "navy; dark" ;', ";"), split_items('12" pipe; 3"', ";")
    (['red', 'navy; dark'], ['12" pipe', '3"'])
    """
    if '"' not in cell:
        parts = [cell] if separator is None else cell.split(separator)
        return [part.strip() for part in parts if part and not part.isspace()]
    end = "$" if separator is None else f"(?:{re.escape(separator)}|$)"
    item = re.compile(rf'\s*"(?P<quoted>(?:[^"]|"")*)"\s*{end}|(?P<plain>.*?){end}', re.DOTALL)
    items = []
    for match in item.finditer(cell):
        quoted = match["quoted"]
        text = match["plain"].strip() if quoted is None else quoted.replace('""', '"')
        if text:
            items.append(text)
    return items


def choose_separator(texts: Iterable[str], known: Iterable[str] = ()) -> str | None:
    """Return what separates the labels of these cells, None if each is one label; raise AmbiguousError if unclear.

    Args:
        texts: the cells.
        known: names of labels known from elsewhere, as from cells that hold lists.

    >>> choose_separator(["red, navy", "navy, green", "green, red", "red"])
    ','
    >>> choose_separator(["Peru", "Chile", "Cuba", "Malta", "Bolivia, Plurinational State of"]) is None
    True
    """
    cells = sorted({text for text in texts if text})
    known = set(known)
    verdicts = {mark: _judge(mark, cells, known) for mark in GUESSED if any(mark in cell for cell in cells)}
    if all(verdict == _NAME for verdict in verdicts.values()):
        return None
    stray = _stray([mark for mark, verdict in verdicts.items() if verdict == _SEPARATOR], cells)
    consistent = [
        mark
        for mark, verdict in verdicts.items()
        if mark not in stray and verdict == _SEPARATOR and _alone(mark, stray, cells, known)
    ]
    if len(consistent) == 1:
        return consistent[0]
    marks = [mark for mark, verdict in verdicts.items() if verdict != _NAME]
    raise AmbiguousError(marks, max(cells, key=lambda cell: sum(mark in cell for mark in marks)))


def _stray(separators: Sequence[str], cells: Sequence[str]) -> set[str]:
    """Return the marks in hardly any cell, where cells with one of the separators are the rule."""
    counts = {mark: sum(mark in cell for cell in cells) for mark in GUESSED}
    usual = max((counts[mark] for mark in separators), default=0)
    return {mark for mark in GUESSED if counts[mark] <= max(1, len(cells) / 100) and 5 * counts[mark] <= usual}


def _alone(separator: str, stray: set[str], cells: Sequence[str], known: set[str]) -> bool:
    """Return whether the other marks are part of names once the cells are split."""
    names = sorted({item for cell in cells for item in split_items(cell, separator)})
    others = [mark for mark in GUESSED if mark not in stray | {separator} and any(mark in name for name in names)]
    return all(_judge(mark, names, known) == _NAME for mark in others)


def _judge(mark: str, cells: Sequence[str], known: set[str]) -> str:
    """Return what the mark is in these distinct cells."""
    rows = [split_items(cell, mark) for cell in cells]
    marked = [(cell, row) for cell, row in zip(cells, rows, strict=True) if mark in cell and row != [cell]]
    if any(_has_quoted_item(cell, mark) for cell, row in marked if len(row) > 1):
        return _SEPARATOR
    several = [row for _, row in marked if len(row) > 1]
    spaced = mark == "," and any(", " in cell for cell, _ in marked)
    if not several:  # at the end of cells only, or inside quotes
        return _NAME if not marked else _UNCLEAR if spaced else _SEPARATOR
    share = len(several) / len(cells)
    evidence = _mixed(rows, several, known) if spaced else _recurring(rows, several, known)
    if spaced and evidence >= MIXED:
        return _SEPARATOR if _spaces_mean_nothing([cell for cell, _ in marked], rows, known) else _UNCLEAR
    usual = share > 0.5 and (mark != "," or evidence > 0)  # names seldom have | or ;
    if not spaced and (evidence >= RECURRING or usual):
        return _SEPARATOR
    if evidence <= CHANCE and share <= RARE:
        return _NAME
    return _UNCLEAR


def _recurring(rows: Sequence[Sequence[str]], several: Sequence[Sequence[str]], known: set[str]) -> float:
    """Return which share of the pieces occurs in other cells."""
    counts = Counter(chain.from_iterable(rows))
    pieces = list(chain.from_iterable(several))
    return sum(counts[piece] > 1 or piece in known for piece in pieces) / len(pieces)


def _mixed(rows: Sequence[Sequence[str]], several: Sequence[Sequence[str]], known: set[str]) -> float:
    """Return the share of the cells with a piece in another position (first, last, alone) elsewhere."""
    alone = {row[0] for row in rows if len(row) == 1} | known
    first, last = {row[0] for row in several}, {row[-1] for row in several}
    inside = {piece for row in several for piece in row[1:-1]}
    places = Counter(chain(alone, first, last, inside))
    return sum(any(places[piece] > 1 for piece in row) for row in several) / len(several)


def _spaces_mean_nothing(cells: Sequence[str], rows: Sequence[Sequence[str]], known: set[str]) -> bool:
    """Return whether commas with and without a space both separate: what a ", " keeps together occurs apart as well."""
    if all(cell.count(",") == cell.count(", ") for cell in cells):
        return True
    counts = Counter(chain.from_iterable(rows))
    pairs = Counter(
        (left.rpartition(",")[2].strip(), right.partition(",")[0].strip())
        for cell in cells
        for left, right in pairwise(cell.split(", "))
    )
    apart = [all(counts[piece] > count or piece in known for piece in pair) for pair, count in pairs.items()]
    return sum(apart) / len(apart) >= MIXED


def _has_quoted_item(cell: str, mark: str) -> bool:
    """Return whether an item of the cell is quoted and the mark is next to it."""
    near = re.escape(mark)
    return '"' in cell and re.search(rf'(?:^|{near})\s*"(?:[^"]|"")*"\s*(?:{near}|$)', cell) is not None
