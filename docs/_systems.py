"""Tables of docs/systems.md."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Table = Callable[[list[str], list[list[str]]], str]
METRICS = ["P@1", "P@5", "PSP@1", "PSP@5", "coverage@5"]
PUBLISHED = ("LF-AmazonTitles-131K", "LF-AmazonTitles-1.3M")
MINILM = ", MiniLM"  # ends the names of rows with the published recipe over MiniLM
SETS = ["debian-related", "wordnet-related", "eurlex57k-titles", "pydocs"]
FLAGSHIP = "auto"


def choices_text(table: Table) -> str:
    """Return the choices of every recipe, stage by stage."""
    from megalabel.recipes.table import COLUMNS, recipe_rows

    rows = [[f"`{name}`" if name else "", *rest] for name, *rest in recipe_rows()]
    return table(list(COLUMNS), rows)


def measured_text(table: Table, stored: dict[str, Any], quality: dict[str, list[dict[str, Any]]], where: str) -> str:
    """Return one table for each data set, the best P@1 first, with the published P@1 beside it.

    ``quality`` has the rows of the benchmark of quality by data set: the flagship stands in the table with those where
    the study of systems has not run it.
    """
    rows = stored["rows"]
    names = sorted({row["data"] for row in rows}, key=lambda name: (*SETS, name).index(name))
    parts = []
    for name, minilm in ((name, minilm) for name in names for minilm in (False, True)):
        own = [row for row in rows if row["data"] == name and row["name"].endswith(MINILM) is minilm]
        if not own:
            continue
        groups = [[row for row in own if row["name"] == system] for system in {row["name"] for row in own}]
        ranked = [(_mean(group, "P@1"), _lines(group)) for group in groups]
        borrowed = [row for row in quality.get(name, ()) if row["system"] == FLAGSHIP and not minilm]
        if borrowed and not any(row["name"] == FLAGSHIP for row in own):
            ranked.append((sum(row["P@1"] for row in borrowed) / len(borrowed), [_borrowed_line(borrowed)]))
        lines = [line for _, group in sorted(ranked, key=lambda each: -each[0]) for line in group]
        columns = ["system", *METRICS, "epochs", "training, CPU s", "MiB", *(f"published P@1, {s}" for s in PUBLISHED)]
        seeds = sorted({row["seed"] for row in own})
        minutes = next((row["cpu_minutes"] for row in own if "cpu_minutes" in row), None)
        budget = "" if minutes is None else f", at most {minutes:g} minutes of training each, and at least one epoch"
        caption = f"**{name}**{MINILM * minilm}: test rows, seed {', '.join(map(str, seeds))}{budget}"
        parts.append(f"{caption}\n\n{table(columns, lines)}")
    return "\n".join(parts) + f"\nMinutes of processor time, one thread; {where}.\n"


def order_text(table: Table, stored: dict[str, Any]) -> str:
    """Return the systems by their published P@1, with their places there and on each of our sets."""
    published = {row["name"]: row["recipe"] for row in stored["rows"] if not row["name"].endswith(MINILM)}
    figures = {name: _published(recipe)[0] for name, recipe in published.items()}
    figures = {name: float(figure) for name, figure in figures.items() if figure != "-"}
    names = sorted(figures, key=lambda name: -figures[name])
    own_rows = {data: [row for row in stored["rows"] if row["data"] == data] for data in SETS}
    means = {
        data: {name: _mean(own, "P@1") for name in names if (own := [row for row in rows if row["name"] == name])}
        for data, rows in own_rows.items()
    }
    means = {data: values for data, values in means.items() if len(values) > 2}
    places = {data: _places(values) for data, values in means.items()}
    lines = [[name, f"{figures[name]:.2f}", *(str(places[data].get(name, "-")) for data in means)] for name in names]
    agreement = [
        f"{_rank_correlation(_places({name: figures[name] for name in values}), places[data]):.2f}"
        for data, values in means.items()
    ]
    lines.append(["rank correlation with the published order", "", *agreement])
    return table(["system", f"published P@1, {PUBLISHED[0]}", *(f"place, {data}" for data in means)], lines)


def stages_text(table: Table, stored: dict[str, Any]) -> str:
    """Return P@1 of the first stage and of the whole system, for systems whose stages all score labels."""
    from megalabel.recipes.load_recipe import load_recipe

    lines = []
    rows = [row for row in stored["rows"] if row.get("epochs") and not row["name"].endswith(MINILM)]
    for name, recipe in {row["name"]: row["recipe"] for row in rows}.items():
        stages = load_recipe(recipe).stages
        if len(stages) < 2 or stages[0].space is not None:
            continue
        for data in SETS:
            own = [row for row in rows if row["name"] == name and row["data"] == data]
            if not own:
                continue
            parts = [_stage_curves(row) for row in own]
            validation = [sum(max(part[at]) for part in parts) / len(parts) for at in (0, -1)]
            heads = [_mean(own, "P@1", head) if head in own[0]["metrics"] else None for head in ("dual", "all")]
            cells = [f"{value:.2f}" if value is not None else "-" for value in (*validation, *heads)]
            lines.append([name, data, *cells, f"{_positives_per_label(own[0]):.1f}"])
    head = ["first stage, validation", "all stages, validation", "dual encoder alone, test", "all heads, test"]
    return table(["system", "data", *head, "training texts a label"], lines)


def _stage_curves(row: dict[str, Any]) -> list[list[float]]:
    """Return validation P@1 of each stage: steps count from the start of a stage."""
    curves: list[list[float]] = []
    last = float("inf")
    for point in row["curve"]:
        if point["step"] <= last:
            curves.append([])
        curves[-1].append(point["P@1"])
        last = point["step"]
    return curves


def _positives_per_label(row: dict[str, Any]) -> float:
    return sum(part["positives"] for part in row["bins"]) / sum(part["labels"] for part in row["bins"])


def _places(values: dict[str, float]) -> dict[str, int]:
    ordered = sorted(values, key=lambda name: -values[name])
    return {name: place for place, name in enumerate(ordered, start=1)}


def _rank_correlation(first: dict[str, int], second: dict[str, int]) -> float:
    """Return Spearman's coefficient of two orders without ties."""
    count = len(first)
    return 1 - 6 * sum((first[name] - second[name]) ** 2 for name in first) / (count * (count**2 - 1))


def _lines(rows: list[dict[str, Any]]) -> list[list[str]]:
    """Return the line of a system, and one for its dual encoder alone if it has a second head."""
    first = rows[0]
    system = f"{first['name']} (`{first['recipe']}`)" + ("" if "cpu_minutes" in first else ", own cost")
    epochs = " + ".join(map(str, first["epochs"].values())) if first.get("epochs") else "-"
    seconds = sum(row["cpu_seconds"] * row["training_share"] for row in rows) / len(rows)
    memory = max(row["peak_mib"] for row in rows)
    lines = [
        [system, *_figures(rows, "all"), epochs, f"{seconds:,.0f}", f"{memory:,.0f}", *_published(first["recipe"])]
    ]
    if "dual" in first["metrics"] and "cpu_minutes" in first:
        lines.append([f"{first['name']}, dual encoder alone", *_figures(rows, "dual"), *[""] * (3 + len(PUBLISHED))])
    return lines


def _figures(rows: list[dict[str, Any]], head: str) -> list[str]:
    return [_figure([row["metrics"][head][name] for row in rows]) for name in METRICS]


def _figure(values: list[float]) -> str:
    mean = sum(values) / len(values)
    if len(values) == 1:
        return f"{mean:.2f}"
    spread = (sum((value - mean) ** 2 for value in values) / (len(values) - 1)) ** 0.5
    return f"{mean:.1f} ± {spread:.1f}"


def _borrowed_line(rows: list[dict[str, Any]]) -> list[str]:
    """Return the line of the flagship from rows of the benchmark of quality, over their seeds."""
    commits = ", ".join(sorted({row["commit"] for row in rows}))
    seeds = ", ".join(str(seed) for seed in sorted(row["seed"] for row in rows))
    threads = "" if (most := max(row["threads"] for row in rows)) == 1 else f", {most} threads"
    name = f"{FLAGSHIP} (`{FLAGSHIP}`), own cost{threads}, seeds {seeds}, from [results](results.md), commits {commits}"
    figures = [_figure([row[metric] for row in rows]) if metric in rows[0] else "-" for metric in METRICS]
    seconds = sum(row["fit_cpu_seconds"] for row in rows) / len(rows)
    memory = max(row["peak_mb"] for row in rows) * 1e6 / 2**20
    return [name, *figures, "-", f"{seconds:,.0f}", f"{memory:,.0f}", *_published(FLAGSHIP)]


def _mean(rows: list[dict[str, Any]], metric: str, head: str = "all") -> float:
    return sum(row["metrics"][head][metric] for row in rows) / len(rows)


def _published(recipe: str) -> list[str]:
    """Return the P@1 that was published for the main setting of a system, or for the first of its variants."""
    from megalabel.recipes.published import load_published

    figures: dict[str, float] = {}
    for each in sorted(load_published(recipe.removesuffix("-cpu")), key=lambda each: each.variant != ""):
        if "P@1" in each.metrics:
            figures.setdefault(each.data, each.metrics["P@1"])
    return [f"{figures[name]:.2f}" if name in figures else "-" for name in PUBLISHED]
