"""The worked example of docs/scale.md, and how far plans are from real trainings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Table = Callable[[list[str], list[list[str]]], str]

# Sizes, batch and dimension of Query2Bid-450M as Kharbanda 2024, chapter 2, gives them; 10 tokens leave room for the
# two special ones within the 12 of the paper.
QUERY2BID: dict[str, Any] = {
    "points": 52_029_024, "labels": 454_608_650, "labels_per_point": 3.96, "query_tokens": 10, "label_tokens": 10,
    "batch": 2048, "dim": 64, "devices": 8, "device": "cuda", "memory": 32 * 2.0**30, "flops": 14e12,
}  # fmt: skip
SETTINGS = ["encoder.query_length=12", "encoder.label_length=12", "training.precision=float32"]
SHORTER = [
    "encoder.options.projection=64", "heads.dual.projection=none", "heads.dual.dim=null", "heads.dual.dropout=0.0",
    "training.heads.weight_decay=0",
]  # fmt: skip


def worked_text(table: Table) -> str:
    """Return the example before and after its change: parts, verdicts, work."""
    from megalabel.plan import plan
    from megalabel.plan.numbers import show_bytes, show_count, show_seconds

    before = plan("depsl", **QUERY2BID, changes=SETTINGS)
    after = plan("depsl", **QUERY2BID, changes=[*SETTINGS, *SHORTER])
    lists = plan("depsl", **QUERY2BID, changes=[*SETTINGS, *SHORTER, "batching.negatives.search=ivf"])
    alone = next(change for change in before.changes if change.options.startswith("--devices"))
    rows = []
    for host in (False, True):
        moment, total = after.memory.peak(host=host)
        for when, part in after.parts:
            if part.host == host:
                rows.append([part.name, show_bytes(part.bytes), when, part.how])
        rows.append(["**main memory per process**" if host else "**GPU**", f"**{show_bytes(total)}**", moment, ""])
    work, index = after.work, after.index_bytes
    sent = ", ".join(f"{name} {show_bytes(size)}" for name, size in work.sent.items())
    return (
        f"The recipe unchanged: *{before.verdict}*. ({alone.options} alone is enough too.) With that change: "
        f"*{after.verdict}*.\n\n"
        f"{table(['part', 'bytes', 'when', 'how it is counted'], rows)}\n"
        f"- Main memory: eight processes on one machine hold {show_bytes(8 * after.host_bytes)} in total. Texts, "
        "names and pairs are mapped from disk and count once.\n"
        f"- A device sends {show_bytes(sum(work.sent.values()))} in a step: {sent}.\n"
        f"- An epoch has {work.steps:,} steps and {show_count(work.flops)}FLOP: encoder {show_count(work.encoder)}, "
        f"products with labels {show_count(work.loss)}, clusters and negatives {show_count(work.refresh)} (every "
        f"fifth epoch, averaged over all), evaluation {show_count(work.evaluate)}.\n"
        f"- At 8 x 14 TFLOP/s that is {show_seconds(after.seconds or 0)} per epoch; with "
        f"`--set batching.negatives.search=ivf` instead of exact search, {show_seconds(lists.seconds or 0)}.\n"
        f"- The index for serving takes {show_bytes(index['exact'])} as vectors, "
        f"{show_bytes(index['pq'])} as codes.\n"
    )


def measured_text(result: dict[str, Any], table: Table, where: str) -> str:
    """Return planned beside measured memory."""
    rows = [
        [row["name"], f"`{row['recipe']}`", f"{row['measured_bytes'] / 2**20:,.0f}",
         f"{row['planned_bytes'] / 2**20:,.0f}", f"{row['ratio'] - 1:+.0%}", row["planned_moment"]]
        for row in result["rows"]
    ]  # fmt: skip
    head = ["training", "recipe", "measured, MiB", "planned, MiB", "error", "when"]
    return f"{table(head, rows)}\nOne thread; {where}.\n"


def published_text(table: Table) -> str:
    """Return the memory that published systems used beside the planned memory of their recipes."""
    from megalabel.plan.numbers import show_bytes
    from megalabel.plan.published import PUBLISHED

    rows = []
    for line in PUBLISHED:
        own = line.ours()
        rows.append(
            [line.system, line.data, f"{line.labels:,}", f"{line.batch:,}",
             "" if line.pool is None else f"{line.pool:,}",
             "" if line.gigabytes is None else f"{line.gigabytes} GB", "" if line.hours is None else f"{line.hours:g}",
             f"{line.source}{f' ({line.hardware})' if line.hardware else ''}",
             "" if own is None else f"`{line.recipe}` {show_bytes(own)}"]
        )  # fmt: skip
    head = [
        "system",
        "data",
        "labels",
        "batch",
        "labels per step",
        "GPU memory",
        "hours",
        "source",
        "planned here, one GPU",
    ]
    return table(head, rows)


SIZES = ((10_000, 2_000), (100_000, 20_000), (1_000_000, 200_000), (2_000_000, 1_000_000))


def memory_text(table: Table) -> str:
    """Return the planned peak of recipes for a CPU, for data of several sizes."""
    from megalabel.plan import plan
    from megalabel.plan.numbers import show_bytes

    lines = []
    for recipe in ("auto", "unidec-cpu", "dexml-cpu", "renee-cpu"):
        plans = (plan(recipe, points=points, labels=labels, device="cpu", memory=2.0**36) for points, labels in SIZES)
        lines.append([f"`{recipe}`", *(show_bytes(each.host_bytes) for each in plans)])
    return table(["recipe", *(f"{points:,} texts, {labels:,} labels" for points, labels in SIZES)], lines)
