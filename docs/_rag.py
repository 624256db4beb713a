"""The tables of questions with several documents, from results/rag.json."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import mean
from typing import Any

from _ablations import figure

Row = dict[str, Any]
Table = Callable[[list[str], list[list[str]]], str]
Interval = Callable[[Sequence[Row], Sequence[Row], int], tuple[float, float]]

EPOCHS = "training.epochs=20"
FIRST = "DS"  # what the others are compared with
RENAMED = {"InfoNCE": "softmax"}  # five epochs, and every positive a target


def rag_text(result: dict[str, Any], table: Table, where: str, interval: Interval) -> str:
    """Return the share of questions all of whose documents are found, by loss; rows of 20 epochs apart from others.

    ``interval`` is that of a difference in the share at k, by a paired bootstrap over test questions.
    """
    parts = []
    for data in dict.fromkeys(row["data"] for row in result["rows"]):
        own = [row for row in result["rows"] if row["data"] == data]
        long = [row for row in own if EPOCHS in row["changes"]]
        parts.append(_of_set(data, long or own, bool(long), table, interval))
    return "\n".join(parts) + f"\n{where[:1].upper()}{where[1:]}.\n"


def _of_set(data: str, rows: list[Row], long: bool, table: Table, interval: Interval) -> str:
    names = list(dict.fromkeys(row["name"] for row in rows))
    by_name = {name: [row for row in rows if row["name"] == name] for name in names}
    ks = list(rows[0]["complete"])
    lines = [
        [
            RENAMED.get(name, name) if not long else name,
            ", ".join(str(row["seed"]) for row in own),
            *(figure([row["complete"][k]["several"]["complete"] for row in own]) for k in ks),
            *(figure([row["metrics"][metric] for row in own]) for metric in ("P@1", "R@10")),
            f"{mean(row['cpu_seconds'] for row in own):,.0f}" if long else "",
        ]
        for name, own in by_name.items()
    ]
    questions = rows[0]["complete"][ks[-1]]["several"]["questions"]
    length = "20 epochs" if long else "five epochs"
    head = ["loss", "seeds", *(f"all in the top {k}" for k in ks), "P@1", "R@10", "CPU s"]
    about = (
        f"**{data}**, `{rows[0]['recipe']}`, {length}: {questions:,} test questions have 2 to {ks[-1]} documents.\n\n"
    )
    return about + table(head, lines) + (_differences(by_name, ks, table, interval) if long else "")


def _differences(by_name: dict[str, list[Row]], ks: list[str], table: Table, interval: Interval) -> str:
    """Return each loss minus the first, on the seeds both have, with intervals."""
    lines = []
    for name, own in by_name.items():
        first = by_name.get(FIRST, [])
        seeds = {row["seed"] for row in own} & {row["seed"] for row in first}
        if name == FIRST or not seeds:
            continue
        sides = [[row for row in side if row["seed"] in seeds] for side in (own, first)]
        cells = []
        for k in ks:
            values = [mean(row["complete"][k]["several"]["complete"] for row in side) for side in sides]
            low, high = interval(*sides, int(k))
            cells.append(f"{values[0] - values[1]:+.1f} ({low:+.1f} to {high:+.1f})")
        lines.append([name, *cells])
    if not lines:
        return ""
    about = "\nAgainst decoupled softmax, with the interval of 95% of a paired bootstrap over test questions:\n\n"
    return about + table(["loss", *(f"top {k}" for k in ks)], lines)
