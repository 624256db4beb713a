"""What a training step costs as the number of labels grows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Table = Callable[[list[str], list[list[str]]], str]

KINDS = {"pool": "UniDEC, a pool of labels", "all": "DEXML, all labels"}


def scale_text(result: dict[str, Any], table: Table, where: str) -> str:
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
        for row in sorted(result["rows"], key=lambda row: (row["ranks"], row["kind"] != "pool", row["labels"]))
    ]
    head = [
        "system",
        "labels",
        "steps",
        "CPU s per step",
        "steps per CPU s",
        "peak MiB",
        "planned MiB",
        "ratio",
    ]
    first, batch, dim = result["rows"][0], result["batch"], result["dim"]
    points = f"{first['points']:,} points with {first['labels_per_point']} labels each"
    size = f"{points}, batches of {batch:,}, {dim} dimensions"
    note = "peak memory of a process without Python, libraries and mapped files"
    return f"{table(head, lines)}\n{size}; {note}; with several ranks, that of the largest. One thread each; {where}.\n"


def _short(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.0f}"
