"""What differs between recipes, key by key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

__all__ = ["recipe_diff"]

PROSE = ("about", "differs", "paper")  # words about a recipe; they change nothing in a run


def recipe_diff(recipes: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return the keys on which recipes differ, each with the value of every recipe; None where it has none.

    Keys are paths, as ``--set`` takes them; what only describes a recipe is left out. A part
    that some recipe has and another has not is one line, with the part's kind or the names in it.

    >>> recipe_diff([{"seed": 0, "training": {"epochs": 3}}, {"seed": 0, "training": {"epochs": 5}}])
    {'training.epochs': [3, 5]}
    >>> recipe_diff([{"heads": {"a": {"tower": "text", "dim": 3}}}, {"heads": {"b": {"tower": "free"}}}])
    {'heads.a': ['text', None], 'heads.b': [None, 'free']}
    """
    return dict(_differences([{key: recipe[key] for key in recipe if key not in PROSE} for recipe in recipes], ""))


def _differences(parts: Sequence[Mapping[str, Any]], prefix: str) -> Iterator[tuple[str, list[Any]]]:
    for key in dict.fromkeys(key for part in parts for key in part):
        found = [part.get(key) for part in parts]
        if all(isinstance(value, Mapping) and value for value in found):
            yield from _differences(found, f"{prefix}{key}.")  # type: ignore[arg-type]
        elif any(value != found[0] for value in found[1:]):
            yield f"{prefix}{key}", [_short(value) for value in found]


def _short(value: Any) -> Any:
    """Return a part of a recipe in a word or two; anything else as it is."""
    if not isinstance(value, Mapping):
        return value
    if not value:
        return None
    return value.get("tower") or value.get("kind") or ", ".join(value)
