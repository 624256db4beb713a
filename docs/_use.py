"""Tables of what trained models are used for: labels added later, updates, students."""

from __future__ import annotations

from collections.abc import Callable
from statistics import mean
from typing import Any

Rows = list[dict[str, Any]]
Table = Callable[[list[str], list[list[str]]], str]

RECALLS = ("R@1", "R@10", "R@100")
TITLES = {"trained": "trained on them", "added": "added by their texts"}


def zero_shot_text(result: dict[str, Any], table: Table, where: str) -> str:
    """Return the recall of labels that were trained and of the same ones added later, means over seeds."""
    parts = []
    for data in dict.fromkeys(row["data"] for row in result["rows"]):
        own = [row for row in result["rows"] if row["data"] == data]
        lines = []
        for recipe in dict.fromkeys(row["recipe"] for row in own):
            for way, title in TITLES.items():
                rows = [row for row in own if (row["recipe"], row["way"]) == (recipe, way)]
                if rows:
                    lines.append([f"`{recipe}`", title, *_figures(rows), _milliseconds(rows)])
        heads = ["recipe", "the new labels", *RECALLS, "R@10 of others", "places taken", "ms per label"]
        new, labels, pairs = (mean(row[name] for row in own) for name in ("new", "labels", "pairs"))
        size = f"{new:,.0f} of {labels:,.0f} labels are new, {pairs:,.0f} test pairs have them"
        parts.append(f"**{data}**: {size}; seeds {_seeds(own)}.\n\n{table(heads, lines)}")
    return "\n".join(parts) + f"\nOne thread; {where}.\n"


def update_text(result: dict[str, Any], table: Table, where: str) -> str:
    """Return metrics and time of an update beside those of training anew."""
    names = ("P@1", "P@5", "PSP@1", "PSP@5")
    titles = {"before": "before", "updated": "updated", "anew": "trained anew"}
    parts = []
    for row in result["rows"]:
        lines = [
            [title, *(f"{row[way]['metrics'][name]:.2f}" for name in names), f"{row[way]['cpu_seconds']:.1f}",
             f"{row[way]['cpu_seconds'] / row['anew']['cpu_seconds']:.2f}"]
            for way, title in titles.items()
        ]  # fmt: skip
        size = f"{row['new']:,} of {row['train']:,} rows are new, and {row['new_labels']:,} of {row['labels']:,} labels"
        heads = ["test rows", *names, "CPU s", "of anew"]
        origin = f"seed {row['seed']}, commit {row['commit']}"
        parts.append(f"**{row['data']}**, `{row['recipe']}`: {size}; {origin}.\n\n{table(heads, lines)}")
    return "\n".join(parts) + f"\nOne thread; {where}.\n"


def distil_text(result: dict[str, Any], peers: dict[str, dict[str, Any]], table: Table, where: str) -> str:
    """Return students beside their teachers and two systems; ``peers`` holds UniDEC and XR-Linear by set."""
    names = ("P@1", "P@5", "PSP@1", "PSP@5")
    parts = []
    for row in result["rows"]:
        models = row["models"]
        titles = {"teacher": f"teacher, `{row['teacher']}`", "student": "student, one vector"}
        lines = [
            [title, *(f"{models[part][name]:.2f}" for name in names), *_times(models[part])]
            for part, title in titles.items()
        ]
        loss = [models["student"][name] - models["teacher"][name] for name in names]
        lines.append(["student - teacher", *(f"{value:+.2f}" for value in loss), "", ""])
        known = peers.get(row["data"], {})
        if "UniDEC" in known:
            lines.append(["UniDEC, `unidec-cpu`", *(f"{known['UniDEC'][name]:.2f}" for name in names),
                          *_times(models["unidec"])])  # fmt: skip
        if "XR-Linear" in known:
            peer = known["XR-Linear"]
            lines.append(["XR-Linear", *(f"{peer[name]:.2f}" for name in names), "", ""])
        parts.append(
            f"**{row['data']}**, seed {row['seed']}.\n\n{table(['test rows', *names, 'ms', 'ms alone'], lines)}"
        )
    return "\n".join(parts) + f"\nOne thread; {where}.\n"


def _times(model: dict[str, Any]) -> list[str]:
    return [f"{model[name]:.2f}" for name in ("batch_ms", "single_ms")]


def _figures(rows: Rows) -> list[str]:
    metrics = [row["metrics"]["all"] for row in rows]
    return [f"{mean(one[name] for one in metrics):.1f}" for name in (*RECALLS, "others R@10", "places")]


def _milliseconds(rows: Rows) -> str:
    return "" if rows[0]["add_ms"] is None else f"{mean(row['add_ms'] for row in rows):.1f}"


def _seeds(rows: Rows) -> str:
    return ", ".join(str(seed) for seed in sorted({row["seed"] for row in rows}))
