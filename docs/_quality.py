"""Tables of systems side by side, from results/quality/*.json."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import mean, stdev
from typing import Any

NAMES = ["P@1", "P@3", "P@5", "R@10", "PSP@1", "PSP@3", "PSP@5", "RP@5", "nDCG@5"]
HEADLINE = ["P@1", "P@5", "PSP@1", "PSP@5"]
COSTS = ["fit, s", "CPU s", "peak MB", "parameters"]
ROLES = ("flagship", "ours", "peer")
NOTHING = "Nothing is measured yet.\n"

Rows = list[dict[str, Any]]
Table = Callable[[list[str], list[list[str]]], str]
Where = Callable[[dict[str, Any]], str]


def load_quality(folder: Path) -> dict[str, Rows]:
    """Return the rows of all data sets by name."""
    result = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]
    return {rows[0]["data"]: rows for rows in result if rows}


def _last(rows: Rows) -> dict[str, Any]:
    """Return the machine of the last row, its date and its commit."""
    return {"machine": {**rows[-1]["machine"], "date": rows[-1]["date"], "commit": rows[-1]["commit"]}}


def quality_text(
    documents: dict[str, Rows], table: Table, where: Where, aims: dict[str, dict[str, Any]] | None = None
) -> str:
    """Return one table for each data set: the flagship first, then our other recipes, then the peers, then aims."""
    parts = []
    for data, every in documents.items():
        measured = [row for row in every if not is_variant(row)]
        systems = by_system(measured)
        leader = {name: max(average(rows, name) for rows in systems.values()) for name in NAMES}
        lines = [
            [title(rows), *(bold(figure(rows, name), average(rows, name) == leader[name]) for name in NAMES),
             *costs(rows)]
            for rows in systems.values()
        ]  # fmt: skip
        head = ["system", *NAMES, *COSTS]
        aim = (aims or {}).get(data)
        if aim:
            figures = (f"{aim[name]:.2f}" if name in aim else "" for name in NAMES)
            lines.append([f"*{aim['name']}*", *figures, *("" for _ in COSTS)])
        under = f"{conditions(measured)}; {where(_last(measured))}.{commits_text(measured)}{aim_text(systems, aim)}\n"
        parts.append(f"### {data}\n\n{table(head, lines)}\n{under}")
    return "\n".join(parts) or NOTHING


def quality_short_text(documents: dict[str, Rows], table: Table, aims: dict[str, dict[str, Any]] | None = None) -> str:
    """Return, for each data set with a flagship row, its headline figures beside the best of all peers on each.

    Aims that are missed are named under the table.
    """
    lines, under = [], []
    for data, every in documents.items():
        systems = by_system(every)
        peers = [rows for rows in systems.values() if rows[0]["role"] == "peer"]
        flagship = _flagship(systems)
        if not flagship:
            continue
        best = {name: max(peers, key=lambda rows, name=name: average(rows, name)) for name in HEADLINE if peers}
        leads = {name: not peers or average(flagship, name) >= average(best[name], name) for name in HEADLINE}
        own = [bold(figure(flagship, name), leads[name]) for name in HEADLINE]
        lines.append([data, title(flagship), *own])
        if peers:
            theirs = [bold(figure(best[name], name), not leads[name]) for name in HEADLINE]
            lines.append(["", f"best of {len(peers)} others on each metric", *theirs])
        missed = missed_text(systems, (aims or {}).get(data))
        under += [f"On {data} `auto` misses our target: {missed}."] if missed else []
    text = table(["data", "system", *HEADLINE], lines) if lines else NOTHING
    return "\n".join([text, *(f"{line}\n" for line in under)])


def cost_text(documents: dict[str, Rows], table: Table, where: Where) -> str:
    """Return what the flagship cost on each data set, the cheapest first; its weights are also its size on disk."""
    found = [(data, _flagship(by_system(rows))) for data, rows in documents.items()]
    known = sorted(((data, rows) for data, rows in found if rows), key=lambda each: average(each[1], "fit_cpu_seconds"))
    if not known:
        return NOTHING
    lines = [
        [data, f"{average(rows, 'fit_cpu_seconds') / 60:.1f}", f"{average(rows, 'peak_mb'):,.0f}",
         f"{average(rows, 'parameters') / 1e6:.1f} M", f"{4 * average(rows, 'parameters') / 1e6:,.0f} MB"]
        for data, rows in known
    ]  # fmt: skip
    used = [row for _, rows in known for row in rows]
    head = ["data", "processor minutes", "peak MB", "weights", "at 4 bytes each"]
    return f"{table(head, lines)}\n{conditions(used)}; {where(_last(used))}.{commits_text(used)}\n"


def variants_text(documents: dict[str, Rows], table: Table, where: Where) -> str:
    """Return recipes with changes, by data set and name, beside the unchanged flagship."""
    lines, used = [], []
    for data, every in documents.items():
        changed = [row for row in every if is_variant(row)]
        whole = [row for row in every if row["role"] == "flagship"]
        for place, rows in enumerate(by_system([*changed, *whole]).values() if changed else ()):
            metrics = (figure(rows, name) for name in NAMES)
            lines.append(["" if place else data, title(rows), *metrics, listed({row["threads"] for row in rows})])
            lines[-1] += costs(rows)
        used += changed
    if not lines:
        return NOTHING
    under = f"{conditions(used)}; {where(_last(used))}.{commits_text(used)}\n"
    return f"{table(['data', 'system', *NAMES, 'threads', *COSTS], lines)}\n{under}"


def is_variant(row: dict[str, Any]) -> bool:
    """Say whether a row is of a recipe with changes, which has a table of its own."""
    return row["role"] == "ours" and bool(row["settings"]["changes"])


def aim_text(systems: dict[str, Rows], aim: dict[str, Any] | None) -> str:
    """Return the sentence under a table whose last line is a target that the flagship misses."""
    missed = missed_text(systems, aim)
    return f" {title(_flagship(systems))} misses the last line: {missed}." if missed else ""


def missed_text(systems: dict[str, Rows], aim: dict[str, Any] | None) -> str:
    """Return how far the flagship is below its targets; empty if it reaches them."""
    flagship = _flagship(systems)
    if not flagship or aim is None:
        return ""
    short = {name: aim[name] - average(flagship, name) for name in NAMES if name in aim}
    return listed(f"{name} by {value:.1f}" for name, value in short.items() if value > 0)


def _flagship(systems: dict[str, Rows]) -> Rows:
    """Return the rows of the recipe that leads the table; none if it was not run."""
    return next((rows for rows in systems.values() if rows[0]["role"] == "flagship"), [])


def by_system(rows: Rows) -> dict[str, Rows]:
    """Return the rows of each system: by role, then the better P@1 first."""
    result: dict[str, Rows] = {}
    for row in rows:
        result.setdefault(row["system"], []).append(row)
    order = sorted(result, key=lambda name: (ROLES.index(result[name][0]["role"]), -average(result[name], "P@1"), name))
    return {name: result[name] for name in order}


def average(rows: Rows, name: str) -> float:
    """Return the mean over seeds."""
    return mean(row[name] for row in rows)


def figure(rows: Rows, name: str) -> str:
    """Return a metric: with the standard deviation over seeds where there are several."""
    values = [row[name] for row in rows]
    return f"{values[0]:.2f}" if len(values) == 1 else f"{mean(values):.1f} ± {stdev(values):.1f}"


def costs(rows: Rows) -> list[str]:
    """Return seconds by the clock and of the processor, memory and parameters, means over seeds."""
    known = [row["parameters"] for row in rows if row["parameters"] is not None]
    return [
        f"{average(rows, 'fit_seconds'):,.0f}",
        f"{average(rows, 'fit_cpu_seconds'):,.0f}",
        f"{average(rows, 'peak_mb'):,.0f}",
        f"{mean(known) / 1e6:,.1f} M" if known else "-",
    ]


def title(rows: Rows) -> str:
    """Return what a system is called in a table; our recipes look like what one types."""
    name = rows[0]["system"]
    return name if rows[0]["role"] == "peer" else f"`{name}`"


def bold(text: str, best: bool) -> str:
    """Mark the best figure."""
    return f"**{text}**" if best else text


def conditions(rows: Rows) -> str:
    """Say which seeds, how many threads, and the days where there are several."""
    threads, days = sorted({row["threads"] for row in rows}), sorted({row["date"] for row in rows})
    groups = {tuple(sorted({row["seed"] for row in own})) for own in by_system(rows).values()}
    seeds = " or ".join(listed(group) for group in sorted(groups))
    span = f"; measured {days[0]} to {days[-1]}" if len(days) > 1 else ""
    return f"Seeds: {seeds}; threads: {listed(threads)}{span}"


def commits_text(rows: Rows) -> str:
    """Say at which commits rows were run, where there are several."""
    commits = sorted({row["commit"] for row in rows})
    return f" Rows were run at the commits {listed(commits)}." if len(commits) > 1 else ""


def listed(values: Iterable[Any]) -> str:
    """Return values with commas."""
    return ", ".join(str(value) for value in values)
