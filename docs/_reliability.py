"""The generated tables of docs/reliability.md."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def soak_text(result: dict[str, Any], table: Callable[[list[str], list[list[str]]], str], where: str) -> str:
    """Return what the soak measured, and the promises it found broken."""
    memory, ends = result["memory_mib"], result["ends"]
    requests = {kind: sum(statuses.values()) for kind, statuses in result["statuses"].items()}
    rows = [
        ["minutes", f"{result['minutes']:g}"],
        ["requests", f"{result['requests']:,}"],
        ["of them attacks, and clients that misbehave", f"{requests['attack']:,}, {requests['misbehave']:,}"],
        ["answers with status 500 or 502", f"{result['server_errors']:,}"],
        ["predictions compared with the model", f"{result['answers_compared']:,}"],
        ["p50 and p99 of a prediction", f"{result['p50_ms']:.0f}, {result['p99_ms']:.0f} ms"],
        ["changes of labels, acknowledged", f"{result['changes']:,}"],
        ["p50 of a change", f"{result['change_p50_ms']:.0f} ms"],
        ["ends of the server", ", ".join(f"{count} x {how}" for how, count in sorted(ends.items()))],
        ["acknowledged labels that differ after a restart", f"{result['lost_changes']:,}"],
        ["changes applied by half", f"{result['half_applied']:,}"],
        ["largest difference of a score by a restart", f"{result['score_shift']:.4f}"],
        [
            f"memory, warm and after {memory['seconds']:.0f} s",
            f"{memory['start']:.0f}, {memory['end']:.0f} MiB ({memory['growth']:+.1%})",
        ],
    ]
    about = f"`{result['model']}` on {result['data']}, {result['labels']:,} labels, {result['threads']} thread(s)"
    return f"{table(['', ''], rows)}\n{about}; {where}. {_broken(result['broken'])}\n"


def statuses_text(result: dict[str, Any], table: Callable[[list[str], list[list[str]]], str]) -> str:
    """Return the number of answers by kind of request and status."""
    kinds = {kind: counts for kind, counts in result["statuses"].items() if kind != "misbehave"}
    statuses = sorted({status for counts in kinds.values() for status in counts})
    rows = [[kind, *(f"{counts.get(status, 0):,}" for status in statuses)] for kind, counts in kinds.items()]
    return table(["", *statuses], rows)


def _broken(broken: list[str]) -> str:
    if not broken:
        return "No promise was broken."
    return f"**{len(broken)} promise(s) broken**, the first: {broken[0]}."
