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


def load_text(load: dict[str, Any], table: Table, where: str) -> str:
    """Return the memory of processes that load a large set."""
    lines = []
    for row in load["rows"]:
        each = row["each"]

        def shown(name: str, parts: list[dict[str, Any]] = each) -> str:
            return ", ".join(f"{part[name] / 2**20:,.0f}" for part in parts)

        lines.append(
            [
                str(row["ranks"]),
                *map(shown, ("libraries_bytes", "load_peak_bytes", "hold_out_peak_bytes", "bytes")),
                *map(shown, ("mapped_bytes", "mapped_share_bytes")),
                f"{sum(part['bytes'] + part['mapped_share_bytes'] for part in each) / 2**20:,.0f}",
                ", ".join(f"{part['load_cpu_seconds']:.0f}" for part in each),
            ]
        )
    first = load["rows"][0]["each"][0]
    head = [
        "processes", "libraries", "reading, peak", "holding out, peak", "afterwards", "files mapped", "its share",
        "all processes", "CPU s of reading",
    ]  # fmt: skip
    size = f"{first['points']:,} train points, {first['pairs']:,} pairs, {first['labels']:,} labels"
    return f"{table(head, lines)}\n{size}; {load['bytes'] / 2**20:,.0f} MiB of JSON lines. In MiB; {where}.\n"


def _short(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.0f}"
