"""The generated table of docs/serve.md."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def serve_text(result: dict[str, Any], table: Callable[[list[str], list[list[str]]], str], where: str) -> str:
    """Return the table of the load test and a summary."""
    head = ["", "clients", "seconds", "requests/s", "p50 ms", "p99 ms", "CPU ms/request", "errors",
            "wrong answers", "labels added and removed", "MiB, first and last"]  # fmt: skip
    rows = [
        [row["name"], f"{row['clients']}", f"{row['seconds']:.0f}", f"{row['per_second']:.0f}", f"{row['p50_ms']:.0f}",
         f"{row['p99_ms']:.0f}", f"{_cpu(row):.2f}", f"{row['errors']}", f"{row['wrong']}",
         f"{row['labels_changed']}", f"{row['memory']['first_mib']:.0f}, {row['memory']['last_mib']:.0f}"]
        for row in result["rows"]
    ]  # fmt: skip
    batched, unbatched = result["rows"][1:3]
    about = f"`{result['model']}` on {result['data']}, {result['labels']:,} labels, {result['threads']} thread(s)"
    return (
        f"{table(head, rows)}\nOne text per request, k = {result['k']}; each client sends its next request when it has "
        f"its answer; {about}; load average {result['load_average']:.1f} at the end, with other processes on the "
        f"machine; {where}. Batching answers {result['ratio']:.1f}x the requests, with "
        f"{_cpu(unbatched) / _cpu(batched):.1f}x less processor time per request.\n"
    )


def _cpu(row: dict[str, Any]) -> float:
    return 1e3 * float(row["cpu_seconds"]) / float(row["requests"])
