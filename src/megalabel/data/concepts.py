"""What a vocabulary knows of its labels beyond a text: the name to show, a notation, broader labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from megalabel.errors import DataError

__all__ = ["CONCEPT_KEYS", "Concept", "find_cycle", "read_concepts", "root_path"]

CONCEPT_KEYS = ("name", "notation", "parents")  # in the row of a label


@dataclass(frozen=True, slots=True)
class Concept:
    """What is known of a label beyond its text.

    ``name`` is what to show where the text says more than that, such as synonyms. ``parents`` holds the ids of the
    next broader labels; their own parents are not repeated.
    """

    name: str | None = None
    notation: str | None = None
    parents: tuple[int, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return what is known, ready for JSON; :func:`read_concepts` reads it back."""
        fields = {"name": self.name, "notation": self.notation, "parents": list(self.parents)}
        return {key: value for key, value in fields.items() if value is not None and value != []}


def read_concepts(rows: Sequence[tuple[int, Mapping[str, Any]]], path: Path | str) -> dict[int, Concept]:
    """Return the concepts by label, given the line and the row of every label; a wrong value, or a circle, is an error.

    >>> read_concepts([(1, {}), (2, {"name": "cats", "parents": [0]})], "lbl.jsonl")
    {1: Concept(name='cats', notation=None, parents=(0,))}
    """
    concepts: dict[int, Concept] = {}
    for label, (line, row) in enumerate(rows):
        if not any(key in row for key in CONCEPT_KEYS):
            continue
        try:
            concepts[label] = _concept(row, len(rows))
        except ValueError as error:
            raise DataError(str(error), path=path, line=line) from None
    cycle = find_cycle([concepts[place].parents if place in concepts else () for place in range(len(rows))]
                       if concepts else [])  # fmt: skip
    if cycle is not None:
        what = f"the parents of labels run in a circle: {' < '.join(map(str, cycle[:6]))}"
        raise DataError(what, path=path, line=rows[cycle[0]][0], remedy="remove one of these links")
    return concepts


def _concept(row: Mapping[str, Any], labels: int) -> Concept:
    name, notation, parents = row.get("name"), row.get("notation"), row.get("parents", [])
    for key, value in (("name", name), ("notation", notation)):
        if value is not None and not isinstance(value, str):
            raise ValueError(f'"{key}" must be a text, not {value!r:.60}')
    if not isinstance(parents, list) or not all(type(label) is int and 0 <= label < labels for label in parents):
        raise ValueError(f'"parents" must be a list of label ids from 0 to {labels - 1}, not {parents!r:.60}')
    return Concept(name, notation, tuple(parents))


def find_cycle(parents: Sequence[Sequence[int]]) -> list[int] | None:
    """Return labels of which each is a parent of the one before, the last being the first; None if there are none.

    >>> find_cycle([[1], [2], []]), find_cycle([[1], [2], [0]])
    (None, [0, 1, 2, 0])
    """
    done = [False] * len(parents)
    for start in range(len(parents)):
        way, places, open_parents = [start], {start: 0}, [iter(parents[start])]
        while way and not done[start]:
            above = next(open_parents[-1], None)
            if above is None:
                done[way[-1]] = True
                open_parents.pop()
                del places[way.pop()]
            elif above in places:
                return [*way[places[above] :], above]
            elif not done[above]:
                places[above] = len(way)
                way.append(above)
                open_parents.append(iter(parents[above]))
    return None


def root_path(label: int, parents: Sequence[Sequence[int]]) -> list[int]:
    """Return the labels above one, from the root down, through the first parent of each.

    >>> root_path(0, [[1, 3], [2], [], []])
    [2, 1]
    """
    path: list[int] = []
    while parents[label]:
        label = parents[label][0]
        path.append(label)
    return path[::-1]
