"""The tables of a report, as HTML and as plain text; the differences between recipes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from megalabel.recipes.load_recipe import list_recipes, load_recipe
from megalabel.report._html import escaped
from megalabel.report.results import Curves, Results

__all__ = [
    "Table",
    "bins_table",
    "calibration_table",
    "cost_table",
    "every_metric_table",
    "metrics_table",
    "recipe_diff",
    "recipe_table",
    "tail_table",
    "threshold_table",
]

METRICS = ("P@1", "P@3", "P@5", "nDCG@5", "PSP@1", "PSP@3", "PSP@5", "R@10", "R@100", "coverage@5")
LONGEST = 48  # characters of a cell on a terminal
PROSE = ("about", "differs", "paper")  # keys of a recipe that change nothing in a run


@dataclass(frozen=True)
class Table:
    """Rows of text under a header; the first ``names`` columns name the row."""

    caption: str
    header: list[str]
    rows: list[list[str]]
    names: int = 1
    strong: frozenset[tuple[int, int]] = frozenset()  # (row, column) of cells in bold
    words: bool = False  # cells hold words, not numbers

    def html(self) -> str:
        """Return a ``<table>`` that scrolls if it is too wide."""
        kind = ' class="words"' if self.words else ""
        kinds = [' class="words"' if column < self.names else kind for column in range(len(self.header))]
        head = "".join(
            f'<th scope="col"{css}>{escaped(cell)}</th>' for cell, css in zip(self.header, kinds, strict=True)
        )
        body = []
        for number, row in enumerate(self.rows):
            cells = [f'<th scope="row">{escaped(cell)}</th>' for cell in row[: self.names]]
            for column, cell in enumerate(row[self.names :], start=self.names):
                text = escaped(cell)
                inner = f"<strong>{text}</strong>" if (number, column) in self.strong else text
                cells.append(f"<td{kind}>{inner}</td>")
            body.append(f"<tr>{''.join(cells)}</tr>")
        caption = escaped(self.caption)
        return (
            f'<div class="scroll" role="region" tabindex="0" aria-label="{caption}"><table><caption>{caption}</caption>'
            f"<thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table></div>"
        )

    def text(self) -> str:
        """Return the table as plain text, numbers right-aligned, long words cut."""
        rows = [self.header, *([_cut(cell) for cell in row] for row in self.rows)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        left = len(self.header) if self.words else self.names
        lines = [
            "  ".join(
                cell.ljust(width) if column < left else cell.rjust(width)
                for column, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in rows
        ]
        return "\n".join(lines)


def metrics_table(runs: Sequence[Results]) -> Table:
    """Return the main metrics of every run, all heads together and each alone; the best of a column is bold."""
    reports = [(run.name, head, report["metrics"]) for run in runs for head, report in run.heads.items()]
    names = [name for name in METRICS if all(name in metrics for _, _, metrics in reports)]
    first = ["run", "heads"] if len(runs) > 1 else ["heads"]
    rows = [
        [*[run, head][-len(first) :], *(f"{metrics[name]:.2f}" for name in names)] for run, head, metrics in reports
    ]
    strong = set()
    for column, name in enumerate(names, start=len(first)):
        best = f"{max(metrics[name] for _, _, metrics in reports):.2f}"
        strong |= {(number, column) for number, row in enumerate(rows) if row[column] == best}
    caption = "Metrics in percent" + ("; the best of each column is bold" if len(rows) > 1 else "")
    best_cells = frozenset(strong if len(rows) > 1 else ())
    return Table(caption, [*first, *names], rows, names=len(first), strong=best_cells)


def every_metric_table(runs: Sequence[Results]) -> Table:
    """Return all metrics at all cut-offs, all heads together, one column per run."""
    rows = [[name, *(f"{run.best['metrics'][name]:.2f}" for run in runs)] for name in runs[0].best["metrics"]]
    return Table("All metrics in percent, all heads together", ["metric", *(run.name for run in runs)], rows)


def bins_table(runs: Sequence[Results], key: str) -> Table:
    """Return P@1 and P@5 split by label frequency; ``key`` is ``bins`` or ``groups``."""
    reports = runs[0].heads if len(runs) == 1 else {run.name: run.best for run in runs}
    header = ["labels", "number", "training points of each"]
    rows = []
    for number, part in enumerate(runs[0].best[key]):
        smallest, largest = part["least"], part["largest"]
        row = [
            part["name"],
            f"{part['labels']:,}",
            f"{smallest:,}" if smallest == largest else f"{smallest:,} to {largest:,}",
        ]
        rows.append(row + [f"{report[key][number][k]:.2f}" for k in ("P@1", "P@5") for report in reports.values()])
    header += [f"{k} {name}" for k in ("P@1", "P@5") for name in reports]
    title = {"bins": "equal volume", "groups": "fixed limits"}[key]
    return Table(f"Parts of P@k by label frequency, {title}", header, rows)


def threshold_table(runs: Sequence[Results]) -> Table | None:
    """Return the threshold of every run and the figures of the labels above it; None if no run has one."""
    columns = {
        "precision": "precision", "recall": "recall", "micro F1": "micro_f1", "sample F1": "sample_f1",
        "macro F1": "macro_f1", "labels per text": "labels_per_text", "texts without a label, %": "empty",
    }  # fmt: skip
    rows = []
    for run in runs:
        if (sets := run.best.get("threshold")) is not None:
            first = [*([run.name] if len(runs) > 1 else []), f"{sets['value']:.4g}", sets["goal"]]
            for part, figures in ((run.data["split"], sets), ("validation", sets["validation"])):
                rows.append([*first, part, *(f"{figures[key]:.2f}" for key in columns.values())])
    if not rows:
        return None
    names = [*(["run"] if len(runs) > 1 else []), "threshold", "chosen for", "rows"]
    return Table("Labels with a score above the threshold", [*names, *columns], rows, names=len(names))


def calibration_table(runs: Sequence[Results]) -> Table | None:
    """Return number, mean probability and accuracy of the labels in each bin; None without a fused model."""
    fused = [(run.name, run.calibration) for run in runs if run.calibration]
    if not fused:
        return None
    header = ["probability, percent"]
    for name, _ in fused:
        header += [f"{'' if len(runs) == 1 else f'{name} '}{key}" for key in ("labels", "predicted", "observed")]
    rows = []
    for number, limits in enumerate(fused[0][1]["bins"]):
        row = [f"{limits['low']} to {limits['high']}"]
        for _, calibration in fused:
            part = calibration["bins"][number]
            shares = (f"{part[key]:.1f}" if part["labels"] else "-" for key in ("predicted", "observed"))
            row += [f"{part['labels']:,}", *shares]
        rows.append(row)
    return Table("The five most probable labels of each text, by probability", header, rows)


def tail_table(runs: Sequence[Results]) -> Table | None:
    """Return the metrics of fused models by ``tail``; None without a fused model."""
    first = ["run", "tail"] if len(runs) > 1 else ["tail"]
    names = [name for run in runs for metrics in run.trade_off[:1] for name in metrics if name != "tail"]
    rows = [
        [*[run.name, f"{metrics['tail']:g}"][-len(first) :], *(f"{metrics[name]:.2f}" for name in dict.fromkeys(names))]
        for run in runs
        for metrics in run.trade_off
    ]
    return Table("Metrics in percent by tail", [*first, *dict.fromkeys(names)], rows, len(first)) if rows else None


def cost_table(runs: Sequence[Results]) -> Table:
    """Return size, length of training and speed, one column per run; time and memory only if they were logged."""
    totals = [Curves(run.log).totals() for run in runs]
    heads = dict.fromkeys(head for run in runs if len(run.weights) > 1 for head in run.weights)
    lines: dict[str, list[str]] = {
        "parameters": [f"{run.facts['parameters']:,.0f}" for run in runs],
        "model on disk": [_size(run.facts["model_bytes"]) for run in runs],
        "epochs": [_count(total.get("epochs")) for total in totals],
        "best epoch": [_count(Curves(run.log).best_epoch(run.recipe["training"]["select"])) for run in runs],
        "steps": [_count(total.get("steps")) for total in totals],
        "training time": [_time(total.get("seconds")) for total in totals],
        "training, texts per second": [_count(total.get("texts_per_second")) for total in totals],
        "training, memory": [_size(total["memory_mb"] * 2**20) if "memory_mb" in total else "" for total in totals],
        "prediction, texts per second": [_count(run.facts["texts_per_second"]) for run in runs],
        **{f"weight of {head}": [_weight(run.weights.get(head)) for run in runs] for head in heads},
    }
    rows = [[name, *cells] for name, cells in lines.items() if any(cells)]
    return Table("Size, length of training and speed", ["", *(run.name for run in runs)], rows)


def recipe_table(runs: Sequence[Results]) -> Table | None:
    """Return the keys on which the recipes differ; for one run, how it differs from the recipe of that name.

    None for one run with a custom recipe.
    """
    if len(runs) > 1:
        names, recipes = [run.name for run in runs], [run.recipe for run in runs]
        caption = "What differs between the recipes"
    else:
        name = runs[0].recipe["name"]
        if name not in list_recipes():
            return None
        names = [f"{name} (default)", runs[0].name]
        recipes = [load_recipe(name).model_dump(mode="json", by_alias=True), runs[0].recipe]
        caption = f"What was changed in the recipe {name}"
    rows = [[key, *map(_value, values)] for key, values in recipe_diff(recipes).items()]
    return Table(caption, ["key", *names], rows, words=True)


def recipe_diff(recipes: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return the keys on which recipes differ, each with the value in every recipe; None if a recipe lacks it.

    Keys are dotted paths, as in ``--set``; keys that only describe a recipe are left out. A part that is missing
    from one of the recipes is shown as one line, with its kind or the names in it.

    >>> recipe_diff([{"seed": 0, "training": {"epochs": 3}}, {"seed": 0, "training": {"epochs": 5}}])
    {'training.epochs': [3, 5]}
    >>> recipe_diff([{"heads": {"a": {"kind": "text", "dim": 3}}}, {"heads": {"b": {"kind": "free"}}}])
    {'heads.a': ['text', None], 'heads.b': [None, 'free']}
    """
    return dict(_differences([{key: recipe[key] for key in recipe if key not in PROSE} for recipe in recipes], ""))


def _differences(parts: Sequence[Mapping[str, Any]], prefix: str) -> Iterator[tuple[str, list[Any]]]:
    for key in dict.fromkeys(key for part in parts for key in part):
        values = [part.get(key) for part in parts]
        if all(isinstance(value, Mapping) and value for value in values):
            yield from _differences(values, f"{prefix}{key}.")  # type: ignore[arg-type]
        elif any(value != values[0] for value in values[1:]):
            yield f"{prefix}{key}", [_short(value) for value in values]


def _short(value: Any) -> Any:
    """Return a part of a recipe in a word or two; other values unchanged."""
    if not isinstance(value, Mapping):
        return value
    if not value:
        return None
    return value.get("kind") or ", ".join(value)


def _cut(cell: str) -> str:
    return cell if len(cell) <= LONGEST else f"{cell[: LONGEST - 1]}…"


def _value(value: Any) -> str:
    """Format a value of a recipe; a dash means None."""
    return value if isinstance(value, str) else "-" if value is None else json.dumps(value, ensure_ascii=False)


def _count(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"


def _weight(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _time(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return f"{seconds:.1f} s" if seconds < 100 else f"{seconds / 60:.1f} min"


def _size(size: float) -> str:
    return f"{size / 2**20:,.1f} MiB" if size < 2**30 else f"{size / 2**30:,.2f} GiB"
