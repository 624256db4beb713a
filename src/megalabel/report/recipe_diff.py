"""What differs between recipes, key by key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

__all__ = ["recipe_diff"]

PROSE = ("about", "differs", "paper", "published")  # words about a recipe; they change nothing in a run


def recipe_diff(recipes: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return the keys on which recipes differ, each with the value of every recipe; None where it has none.

    Keys are paths, as ``--set`` takes them; what only describes a recipe is left out.

    >>> recipe_diff([{"seed": 0, "training": {"epochs": 3}}, {"seed": 0, "training": {"epochs": 5}}])
    {'training.epochs': [3, 5]}
    """
    flat = [dict(_flatten(recipe)) for recipe in recipes]
    keys = dict.fromkeys(key for one in flat for key in one if key.partition(".")[0] not in PROSE)
    values = {key: [one.get(key) for one in flat] for key in keys}
    return {key: found for key, found in values.items() if any(value != found[0] for value in found[1:])}


def _flatten(node: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in node.items():
        if isinstance(value, Mapping) and value:
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
