"""Tables of search: exact beside faiss's own, approximate indexes beside those of other libraries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Table = Callable[[list[str], list[list[str]]], str]


def search_text(results: dict[str, Any], table: Table, where: str) -> str:
    """Return a table of exact search, then one of indexes for each set of vectors."""
    first = results["exact"][0]
    parts = [
        f"**Exact**, batches of {first['batch']} queries, k = {first['k']}, {first['vectors']} vectors of "
        f"{first['dim']} numbers; in brackets, the time of faiss relative to `ExactIndex`.\n\n"
        f"{_exact(results['exact'], table)}"
    ]
    for one in results["approximate"]:
        size = f"{one['labels']:,} labels, {one['dim']} numbers, {one['queries']:,} queries, k = 10"
        parts.append(
            f"**{one['vectors'][:1].upper()}{one['vectors'][1:]}**: {size}.\n\n{_approximate(one['rows'], table)}"
        )
    threads = f"{results['threads']} thread{'s' if results['threads'] > 1 else ''}"
    low, high = sorted(results["load"])
    return "\n".join(parts) + f"\nCPU time, {threads}, load {low:.1f} to {high:.1f}; {where}.\n"


def engines_text(results: dict[str, Any], table: Table, where: str) -> str:
    """Return a table of search in engines beside our own kinds."""
    lines = [
        [
            f"`{kind}`{comma}{rest}",
            f"{row['build_seconds']:.1f}",
            str(row["effort"] or ""),
            f"{row['recall']:.3f}",
            f"{row['batch_ms']:.3f}",
            f"{row['single_ms']:.2f}",
            f"{row['wall_p50_ms']:.2f} / {row['wall_p99_ms']:.2f}",
        ]
        for row in results["rows"]
        for kind, comma, rest in [row["kind"].partition(",")]
    ]
    head = [
        "kind", "build, s", "effort", f"recall@{results['k']}", "ms of processor a query, in batches", "one at a time",
        "wait for one, p50 / p99 ms",
    ]  # fmt: skip
    low, high = sorted(results["load"])
    return (
        f"{results['labels']:,} labels, {results['dim']} numbers, {results['vectors']}, {results['queries']} queries; "
        f"the least effort with recall {results['recall_asked']}.\n\n{table(head, lines)}\n"
        f"Load {low:.1f} to {high:.1f}; {where}.\n"
    )


def _exact(rows: list[dict[str, Any]], table: Table) -> str:
    lines = []
    for row in rows:
        speed, ratio = row["queries_per_second"], row["ratio"]
        theirs = [f"{speed[name]:,.0f} ({ratio[name]:.2f}x)" for name in ("flat", "flat_blas")]
        lines.append(
            [
                f"{row['labels']:,}",
                f"{speed['exact']:,.0f}",
                *theirs,
                *(_wait(row["single"][name]) for name in ("exact", "flat")),
            ]
        )
    return table(
        ["labels", "`ExactIndex`, queries/s", "faiss FlatIP, default", "faiss FlatIP, always matrix products",
         "one query, p50 / p99 ms", "faiss, one query"], lines,
    )  # fmt: skip


def _approximate(rows: list[dict[str, Any]], table: Table) -> str:
    lines = []
    for row in rows:
        mapped = "" if row["mapped_mb"] is None else f"{row['mapped_mb']:,.0f}"
        exact = row["kind"] == "exact"
        points = [row["points"][0], row["points"][0]] if exact else list(row["at"].values())
        speed = ["not reached" if point is None else f"{point['queries_per_second']:,.0f}" for point in points]
        lines.append(
            [f"`{row['kind']}`", f"{row['build_seconds']:.1f}", f"{row['memory_mb']:,.0f}", mapped, *speed,
             _wait(row["single"])]
        )  # fmt: skip
    head = [
        "kind",
        "build, s",
        "MB",
        "MB, mapped",
        "queries/s at recall 0.95",
        "at 0.99",
        "one query, p50 / p99 ms",
    ]
    return table(head, lines)


def _wait(single: dict[str, float]) -> str:
    return f"{single['p50_ms']:.2f} / {single['p99_ms']:.2f}"
