"""Tables of the ablations, from results/ablations.json and results/published.json: one part for each question."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from _quality import NOTHING, commits_text, listed

NAMES = ("P@1", "P@5", "PSP@1", "PSP@5")
HEADS = {"all": "both heads", "dual": "dual encoder alone", "classifier": "classifier alone"}
MISSING = "not run"
RENAMED = {  # rows that were run when heads of the flagship had other names
    "auto without words": "auto without memory",
    "auto without named": "auto without label_words",
    "auto without naming": "auto without query_words",
}
LEAST = 2  # runs of a table, for there to be something to compare

Rows = list[dict[str, Any]]  # of one name: one row for each seed
Table = Callable[[list[str], list[list[str]]], str]


@dataclass(frozen=True)
class Line:
    """A line of a table: what it says, the run behind it, which head is measured."""

    label: str
    row: str
    head: str = "all"


@dataclass(frozen=True)
class Ablation:
    """One table: its lines, the metrics of ours and of the paper, and what a run costs."""

    lines: tuple[Line, ...]
    metrics: tuple[str, ...] = NAMES
    costs: tuple[str, ...] = ("CPU s", "MiB")
    published: tuple[str, ...] = ()
    leads: tuple[str, ...] = ("",)  # heads of the columns a label is split into


def lines_of(recipe: str, *names: str) -> tuple[Line, ...]:
    """Return lines called as their rows are, without the recipe in front."""
    return tuple(Line(name, f"{recipe}, {name}") for name in names)


def by_head(*named: tuple[str, str]) -> tuple[Line, ...]:
    """Return a line for each run and each of its heads."""
    return tuple(Line(f"{label} | {about}", row, head) for label, row in named for head, about in HEADS.items())


def flagship_lines() -> tuple[Line, ...]:
    """Return the flagship, and each of its heads removed in turn."""
    from megalabel.recipes.load_recipe import load_recipe

    recipe = load_recipe("auto")
    heads = [name for name in recipe.heads if name in recipe.fitted_heads or len(recipe.dense_heads) > 1]
    return (Line("`auto`, all heads", "auto"), *(Line(f"without `{head}`", f"auto without {head}") for head in heads))


PAIRS = (
    "untrained",
    "SupCon / SupCon",
    "SupCon / SupCon + BCE",
    "DS / BCE",
    "DS / BCE, unnormalised",
    "DS / BCE, unnormalised, bias",
    "DS / DS",
    "DS / DS, learnt temperature",
    "DS / DS + BCE",
    "DS / DS + BCE, bias",
)
UNIDEC = "UniDEC, DS / DS"
DEPSL = "DePSL, beta 3, eta 3"
POOL_COSTS = ("pool", "CPU s", "MiB")

TABLES: dict[str, Ablation] = {
    "losses": Ablation(
        (
            *lines_of("DEXML", "untrained", "BCE"),
            Line("BCE, a bias per label, learnt temperature", "DEXML, BCE, bias"),
            *lines_of("DEXML", "softmax", "decoupled softmax"),
            *lines_of("DEXML", "SoftTop-5, alpha 1", "SoftTop-5", "SoftTop-5, alpha 4", "SoftTop-100"),
        ),
        metrics=("P@1", "P@5", "R@100", "PSP@5"),
        published=("P@1", "P@5", "R@100"),
        leads=("loss",),
    ),
    "longer": Ablation(
        (
            Line("untrained", "DEXML, untrained"),
            *(
                Line(name, f"DEXML, {name}, 15 epochs")
                for name in (
                    "softmax",
                    "decoupled softmax",
                    *(f"SoftTop-5, alpha {alpha}" for alpha in (1, 2, 4)),
                    "SoftTop-100",
                )
            ),
        ),
        metrics=("P@1", "P@5", "R@100", "PSP@5"),
        leads=("loss, 15 epochs",),
    ),
    "negatives": Ablation(
        (*lines_of("DEXML", "in batch", "in batch + 10 hard"), Line("all labels", "DEXML, decoupled softmax")),
        costs=POOL_COSTS,
        published=("P@1", "P@5", "pool"),
        leads=("negatives",),
    ),
    "positives": Ablation(
        tuple(Line(f"{beta} | {eta}", f"DePSL, beta {beta}, eta {eta}") for beta in (1, 3, 5) for eta in (0, 3, 6)),
        costs=("positives", "covered", *POOL_COSTS),
        leads=("beta", "eta"),
    ),
    "pool": Ablation(
        (
            *(Line(f"at most {cap:,}", f"DePSL, cap {cap}") for cap in (500, 1000, 2000)),
            Line("as it comes", "DePSL, beta 3, eta 6"),
            *(Line(f"and {count:,} drawn at random", f"DePSL, {count} drawn") for count in (4096, 16384)),
        ),
        costs=("positives", "covered", *POOL_COSTS),
        leads=("labels in the pool",),
    ),
    "symmetric": Ablation(
        (*lines_of("DePSL", "untrained", "SupCon", "SupCon + sym"), Line("DS", DEPSL), *lines_of("DePSL", "DS + sym")),
        published=NAMES,
        leads=("loss",),
    ),
    "heads": Ablation(
        by_head(
            ("with", UNIDEC),
            ("without", "UniDEC, no hard negatives"),
            ("without, pool filled with positives", "UniDEC, no hard negatives, filled"),
        ),
        published=NAMES,
        leads=("hard negatives", "searched"),
    ),
    "pairs": Ablation(
        by_head(*((name, f"UniDEC, {name}") for name in PAIRS)),
        published=NAMES,
        leads=("dual encoder / classifier", "searched"),
    ),
    "costs": Ablation(
        (
            *(Line(f"DEXML, {name}", f"DEXML, {name}") for name in ("in batch", "in batch + 10 hard")),
            Line("DePSL", DEPSL),
            Line("UniDEC", UNIDEC),
            Line("DEXML, all labels", "DEXML, decoupled softmax"),
        ),
        costs=("batch", *POOL_COSTS),
        published=(*NAMES, "batch", "pool", "GB", "hours"),
        leads=("system",),
    ),
    "dimensions": Ablation(
        (
            Line("DePSL | 64", "DePSL, 64 numbers"),
            Line("DePSL | 128", DEPSL),
            Line("DePSL | 256", "DePSL, 256 numbers"),
            Line("DePSL | 384", "DePSL, 384 numbers"),
            Line("UniDEC | 2 x 64", "UniDEC, 2 x 64 numbers"),
            Line("UniDEC | 2 x 128", UNIDEC),
            Line("UniDEC | 2 x 192", "UniDEC, 2 x 192 numbers"),
        ),
        costs=("parameters", "CPU s", "MiB"),
        leads=("system", "dimension searched"),
    ),
    "flagship": Ablation(flagship_lines(), leads=("heads",)),
}


def load_ablations(folder: Path) -> dict[str, Any] | None:
    """Return the document of the study, if there is one."""
    path = folder / "ablations.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def ablation_text(
    name: str, result: dict[str, Any] | None, published: dict[str, Any], table: Table, where: Callable[[Any], str]
) -> str:
    """Return one question's table for each data set that has two runs of it; those that were not made are named."""
    ablation = TABLES[name]
    parts, used = [], []
    for data in dict.fromkeys(row["data"] for row in result["rows"]) if result else ():
        rows = latest(result["rows"], data)
        if len({line.row for line in ablation.lines} & set(rows)) < LEAST:
            continue
        used += [row for line in ablation.lines for row in rows.get(line.row, [])]
        paper = published["ablations"][name]["metrics"] if ablation.published else {}
        head = [
            *ablation.leads,
            *ablation.metrics,
            *ablation.costs,
            *(f"paper {metric}" for metric in ablation.published),
        ]
        parts.append(f"**{data}**\n\n{table(head, [cells(ablation, line, rows, paper) for line in ablation.lines])}")
    if not parts:
        return NOTHING
    seeds, threads = ({str(row[key]) for row in used} for key in ("seed", "threads"))
    source = f" The paper's columns: {published['ablations'][name]['source']}." if ablation.published else ""
    run = f"Test rows; seeds: {listed(sorted(seeds))}; threads: {listed(sorted(threads))}"
    said = f"{run}; {where(result)}.{commits_text(used)}{source}\n"
    return "\n".join([*parts, said])


def latest(rows: Rows, data: str) -> dict[str, Rows]:
    """Return the rows of a data set by name; of a name whose settings have changed, those with the last settings."""
    result: dict[str, Rows] = {}
    for row in rows:
        if row["data"] == data:
            name = RENAMED.get(row["name"], row["name"])
            same = [old for old in result.get(name, []) if old["digest"] == row["digest"]]
            result[name] = [*same, row]
    return result


def cells(ablation: Ablation, line: Line, rows: dict[str, Rows], paper: dict[str, dict[str, float]]) -> list[str]:
    """Return one line of a table."""
    own, theirs = rows.get(line.row), paper.get(line.label, {})
    ours = [MISSING] + [""] * (len(ablation.metrics) + len(ablation.costs) - 1)
    if own is not None:
        ours = [figure([row["metrics"][line.head][name] for row in own]) for name in ablation.metrics]
        shown = line.head == "all"  # a run has its costs once
        ours += [cost(name, own) if shown else "" for name in ablation.costs]
    return [*line.label.split(" | "), *ours, *(plain(name, theirs.get(name)) for name in ablation.published)]


def figure(values: list[float]) -> str:
    """Return a metric: with the standard deviation over seeds where there are several."""
    return f"{values[0]:.2f}" if len(values) == 1 else f"{mean(values):.1f} ± {stdev(values):.1f}"


def plain(name: str, value: float | None) -> str:
    """Return a published figure as it was printed."""
    return "" if value is None else f"{value:.2f}" if "@" in name else f"{value:,}"


def cost(name: str, rows: Rows) -> str:
    """Return what runs took, or how their pools were, as a mean over seeds."""
    if name == "batch":
        from megalabel.recipes.load_recipe import load_recipe

        changes = [change for change in rows[0]["changes"] if change.startswith("batching.batch_size=")]
        return f"{load_recipe(rows[0]['recipe'], changes).batching.batch_size:,}"
    kinds: dict[str, tuple[Callable[[dict[str, Any]], float], str]] = {
        "CPU s": (lambda row: row["cpu_seconds"], "{:,.0f}"),
        "MiB": (lambda row: row["peak_mib"], "{:,.0f}"),
        "parameters": (lambda row: row["parameters"] / 1e6, "{:,.1f} M"),
        "pool": (lambda row: row["pool"]["pool_size"], "{:,.0f}"),
        "positives": (lambda row: row["pool"]["positives_per_query"], "{:.2f}"),
        "covered": (lambda row: 100 * row["pool"]["positives_covered"], "{:.0f}%"),
    }
    value, form = kinds[name]
    return form.format(mean(value(row) for row in rows))
