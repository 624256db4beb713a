"""What a training step costs as labels grow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Table = Callable[[list[str], list[list[str]]], str]

KINDS = {"pool": "UniDEC, a pool of labels", "all": "DEXML, all labels"}


def scale_text(found: dict[str, Any], table: Table, where: str) -> str:
    """Return seconds and memory of a step by the number of labels, beside the plan."""
    lines = [
        [
            KINDS[row["kind"]] + ("" if row["ranks"] == 1 else f", {row['ranks']} ranks"),
            f"{row['labels']:,}",
            f"{row['steps']:,}",
            _short(row["cpu_seconds_per_step"]),
            _short(1 / row["cpu_seconds_per_step"]),
            f"{row['peak_bytes'] / 2**20:,.0f}",
            f"{row['planned_bytes'] / 2**20:,.0f}",
            f"{row['ratio']:.2f}",
        ]
        for row in sorted(found["rows"], key=lambda row: (row["ranks"], row["kind"] != "pool", row["labels"]))
    ]
    head = [
        "step of",
        "labels",
        "steps",
        "processor s a step",
        "steps a processor s",
        "peak MiB",
        "planned MiB",
        "ratio",
    ]
    first, batch, dim = found["rows"][0], found["batch"], found["dim"]
    points = f"{first['points']:,} points of {first['labels_per_point']} labels"
    size = f"{points}, {batch:,} of them a step, vectors of {dim}"
    note = "memory of its own that a process takes beyond Python and libraries, mapped files left out"
    return f"{table(head, lines)}\n{size}; {note}; of several ranks, the one with most. One thread each; {where}.\n"


def _short(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.0f}"
