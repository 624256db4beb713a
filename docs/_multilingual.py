"""The table of docs/multilingual.md: scripts with words cut at spaces and by script."""

from __future__ import annotations

from collections.abc import Callable
from statistics import mean
from typing import Any

Table = Callable[[list[str], list[list[str]]], str]


def multilingual_text(result: dict[str, Any], table: Table, where: str) -> str:
    """Return P@1 of each language and R@5 of labels without train texts, by recipe and split."""
    rows = result["rows"]
    keys = list(dict.fromkeys((row["recipe"], row["source"], row["split"]) for row in rows))
    lines = []
    for recipe, source, split in keys:
        own = [row for row in rows if (row["recipe"], row["source"], row["split"]) == (recipe, source, split)]
        values = [mean(row["P@1"][name] for row in own) for name in own[0]["P@1"]]
        values.append(mean(row["unseen R@5"] for row in own))
        lines.append([f"`{recipe}`", source or "null", f"`{split}`", *(f"{value:.1f}" for value in values)])
    heads = ["recipe", "source", "split", *rows[0]["P@1"], "R@5 of labels without train text"]
    seeds = ", ".join(str(seed) for seed in dict.fromkeys(row["seed"] for row in rows))
    text = "P@1 by language, and in the last column how many of the new labels are in the top 5"
    return f"{text}; seeds {seeds}.\n\n{table(heads, lines)}\n{where[:1].upper()}{where[1:]}.\n"
