"""The figures of docs/serve.md."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def serve_text(found: dict[str, Any], table: Callable[[list[str], list[list[str]]], str], where: str) -> str:
    """Return the rows of the load, and what they say."""
    head = ["", "clients", "seconds", "requests a second", "p50 ms", "p99 ms", "CPU ms a request", "errors",
            "wrong answers", "labels added and removed", "MiB, first and last"]  # fmt: skip
    rows = [
        [row["name"], f"{row['clients']}", f"{row['seconds']:.0f}", f"{row['per_second']:.0f}", f"{row['p50_ms']:.0f}",
         f"{row['p99_ms']:.0f}", f"{_cpu(row):.2f}", f"{row['errors']}", f"{row['wrong']}",
         f"{row['labels_changed']}", f"{row['memory']['first_mib']:.0f}, {row['memory']['last_mib']:.0f}"]
        for row in found["rows"]
    ]  # fmt: skip
    batched, alone = found["rows"][1:3]
    about = f"`{found['model']}` on {found['data']}, {found['labels']:,} labels, {found['threads']} thread(s)"
    return (
        f"{table(head, rows)}\nOne text a request, k = {found['k']}; each client asks again when it has its "
        f"answer; {about}; load average {found['load_average']:.1f} at the end, so other work took its share; {where}. "
        f"In batches the server answers {found['ratio']:.1f}x the requests, each for "
        f"{_cpu(alone) / _cpu(batched):.1f}x less processor time.\n"
    )


def _cpu(row: dict[str, Any]) -> float:
    return 1e3 * float(row["cpu_seconds"]) / float(row["requests"])
