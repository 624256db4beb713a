"""Tables of the Gandalf study, from results/gandalf.json and results/published.json; pictures: _gandalf.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import mean
from typing import Any

from _ablations import figure, latest
from _gandalf import DRAWN, pictures_of

PAPER_DATA = "LF-AmazonTitles-131K"
NAMES = ("P@1", "P@5", "PSP@1", "PSP@5")
BY_TEXT = ("P@1", "PSP@5")
STARTED = "NGAME+Renee"  # the variant of Renee that label rows are compared with
CLOSE = 2.0  # points of P@1 below which an interval is given
SHARES = "% of labels"

Row = dict[str, Any]
Rows = dict[str, list[Row]]  # by name; one row a seed
Table = Callable[[list[str], list[list[str]]], str]
Interval = Callable[[Sequence[Row], Sequence[Row]], tuple[float, float]]


def study_text(
    study: dict[str, Any], published: dict[str, Any], table: Table, where: str, interval: Interval
) -> tuple[str, str]:
    """Return the rows with enough epochs, and those of the earlier set-up that have no such row on their set yet.

    ``interval`` is that of P@1 of some rows over others, by a paired bootstrap over test texts.
    """
    paper = _published_systems(study["rows"]) | published["gandalf"]["metrics"]
    long, short = by_set_up(study["rows"])
    end = f"Test rows; {where}. The paper's columns: {published['gandalf']['source']}.\n"
    return _new_text(long, paper, table, end, interval), _old_text(long, short, paper, table, end)


def by_set_up(rows: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """Return the rows with a budget of 20 minutes, and the earlier ones of few epochs."""
    return [row for row in rows if "cpu_minutes" in row], [row for row in rows if "cpu_minutes" not in row]


def _new_text(rows: Sequence[Row], paper: dict[str, Any], table: Table, end: str, interval: Interval) -> str:
    parts = []
    for data in dict.fromkeys(row["data"] for row in rows):
        own = latest(list(rows), data)
        parts.append(f"### {data}\n")
        parts.append(table(_head(paper=True), [_line(name, own[name], paper) for name in _ordered(own)]))
        parts += _intervals(own, interval) + _convergence(own, table) + _by_text(own, table)
        parts += _coverage(own, paper, table) + _samples(own, table) + _pictures(own, data)
        seeds = sorted({str(row["seed"]) for several in own.values() for row in several})
        commits = sorted({row["commit"] for several in own.values() for row in several})
        parts.append(f"Seeds: {', '.join(seeds)}; rows were run at the commits {', '.join(commits)}.\n")
    return "\n".join([*parts, end]) if parts else "Nothing is measured yet.\n"


def _old_text(long: Sequence[Row], short: Sequence[Row], paper: dict[str, Any], table: Table, end: str) -> str:
    known = {(row["data"], row["name"]) for row in long}
    left = [row for row in short if (row["data"], row["name"]) not in known]
    parts = []
    for data in dict.fromkeys(row["data"] for row in left):
        own = latest(left, data)
        parts.append(f"**{data}**, few epochs, seed 0\n")
        parts.append(table(_head(paper=False), [_line(name, own[name], {}) for name in _ordered(own)]))
        parts += _by_text(own, table) + _pictures(own, data)
    return "\n".join([*parts, end]) if parts else "None.\n"


def _pictures(rows: Rows, data: str) -> list[str]:
    """Return the pictures of a data set beside the rows they are drawn of."""
    return pictures_of(data) if all(name in rows for name in DRAWN) else []


def _published_systems(rows: Sequence[Row]) -> dict[str, dict[str, float]]:
    """Return the published figures of each system with and without Gandalf, by the names of rows."""
    from megalabel.recipes.published import load_published

    figures = {}
    for name, recipe in {row["name"].split(":")[0]: row["recipe"].removesuffix("-cpu") for row in rows}.items():
        own = {each.variant: dict(each.metrics) for each in load_published(recipe) if each.data == PAPER_DATA}
        if "gandalf" in own:
            plain = own[STARTED] if STARTED in own else own[""]
            figures |= {f"{name}: D": plain, f"{name}: Z u D": own["gandalf"]}
    return figures


def _ordered(rows: Rows) -> list[str]:
    """Return the names of rows, those of a system together, without those for the picture of fewer labels."""
    systems = list(dict.fromkeys(name.split(":")[0] for name in rows))
    names = [name for name in rows if SHARES not in name]
    return sorted(names, key=lambda name: (systems.index(name.split(":")[0]), list(rows).index(name)))


def _head(*, paper: bool) -> list[str]:
    published = [f"paper {name}" for name in NAMES] if paper else []
    return ["training data", "epochs", "steps", *NAMES, "CPU s", "MiB", *published]


def _line(name: str, rows: list[Row], paper: dict[str, Any]) -> list[str]:
    ours = [figure([row["metrics"]["all"][metric] for row in rows]) for metric in NAMES]
    costs = [f"{mean(row[key] for row in rows):,.0f}" for key in ("cpu_seconds", "peak_mib")]
    published = [_plain(paper.get(name, {}), metric) for metric in NAMES] if paper else []
    return [name, epochs_text(rows), f"{mean(row['steps'] for row in rows):,.0f}", *ours, *costs, *published]


def epochs_text(rows: Sequence[Row]) -> str:
    """Return the epochs of a run, those of its stages added up; a run that the limit of time cut says so."""
    if not all(row.get("epochs") for row in rows):
        return str(len(rows[0]["curve"]))  # of the earlier set-up, evaluated after each epoch
    run, planned = ([sum(row[key].values()) for row in rows] for key in ("epochs", "planned"))
    return str(run[0]) if run == planned else f"{min(run)} of {planned[0]}, cut"


def _plain(metrics: dict[str, float], name: str) -> str:
    return f"{metrics[name]:.2f}" if name in metrics else ""


def _systems(rows: Rows) -> list[str]:
    """Return the systems of which D and Z u D are there."""
    found = dict.fromkeys(name.split(":")[0] for name in rows)
    return [system for system in found if f"{system}: D" in rows and f"{system}: Z u D" in rows]


def _intervals(rows: Rows, interval: Interval) -> list[str]:
    """Return the interval of Z u D over other lines that are within two points of P@1."""
    found = []
    for system in _systems(rows):
        ours = rows[f"{system}: Z u D"]
        for other in ("D", "D, twice the epochs", "Z1 u D", "Z u D, known merged, at most 5 targets"):
            theirs = rows.get(f"{system}: {other}", [])
            same = {row["seed"] for row in ours} & {row["seed"] for row in theirs}
            if not same:
                continue
            pair = [[row for row in side if row["seed"] in same] for side in (ours, theirs)]
            difference = mean(row["metrics"]["all"]["P@1"] for row in pair[0])
            difference -= mean(row["metrics"]["all"]["P@1"] for row in pair[1])
            if abs(difference) < CLOSE:
                low, high = interval(*pair)
                found.append(f"{system}, Z u D - {other}: {difference:+.2f} ({low:+.2f} to {high:+.2f})")
    about = "Lines within two points of P@1, with the interval of 95% of a paired bootstrap over test texts: "
    return [f"{about}{'; '.join(found)}.\n"] if found else []


def _convergence(rows: Rows, table: Table) -> list[str]:
    """Return how the validation curves of D and Z u D end: the best epoch, and what the last third of epochs gained."""
    lines = []
    for name, several in rows.items():
        kind = name.split(": ")[1]
        if kind in KINDS:
            curves = [of_last_phase(row["curve"]) for row in several]
            best = [max(curve, key=lambda point: point["nDCG@5"])["epoch"] for curve in curves]
            gains = [gain_of_last_third(curve) for curve in curves]
            lines.append(
                [name, f"{len(curves[0])}", f"{mean(best):.1f}", f"{mean(gains):+.2f}", f"{max(gains):+.2f}"]
            )  # fmt: skip
    about = (
        "Has training converged? The epoch with the best nDCG@5 on validation rows, which is the one that is kept, and "
        "how far the best of the last third of epochs is above the best before (of the last stage, where there are "
        "several):\n"
    )
    head = ["", "epochs", "best epoch", "gain of the last third", "largest of the seeds"]
    return [about, table(head, lines)] if lines else []


KINDS = ("D", "D, twice the epochs", "Z u D")


def of_last_phase(curve: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the points of the last stage."""
    return [point for point in curve if point["phase"] == curve[-1]["phase"]]


def gain_of_last_third(curve: Sequence[dict[str, Any]]) -> float:
    """Return how far the best nDCG@5 of the last third of epochs is above the best before; 0 for one epoch."""
    before = len(curve) - len(curve) // 3
    values = [point["nDCG@5"] for point in curve]
    return float(max(values[before:]) - max(values[:before])) if values[before:] else 0.0


def _coverage(rows: Rows, paper: dict[str, Any], table: Table) -> list[str]:
    """Return the share of labels that are found (Table 1.4)."""
    names = [f"coverage@{k}" for k in (1, 3, 5)]
    lines = [
        [
            name,
            *(figure([row["metrics"]["all"][metric] for row in rows[name]]) for metric in names),
            *(_plain(paper.get(name, {}), metric) for metric in names),
        ]
        for system in _systems(rows)
        for name in (f"{system}: D", f"{system}: Z u D")
    ]
    about = "Coverage, the share of labels that are found for at least one text:\n"
    return [about, table(["", *names, *(f"paper {name}" for name in names)], lines)] if lines else []


def _by_text(rows: Rows, table: Table) -> list[str]:
    """Return the effect of label rows on test texts that are also label texts, and on the others."""
    kinds = {"label": "text is a label text", "other": "other texts"}
    chosen = {name: rows[name] for name in _ordered(rows) if all("by_text" in row for row in rows[name])}
    if not chosen:
        return []
    lines = [
        [name, *(_of_kind(several, kind, metric) for kind in kinds for metric in BY_TEXT)]
        for name, several in chosen.items()
    ]
    first = next(iter(chosen.values()))[0]["by_text"]
    sizes = {kind: first[kind]["rows"] if kind in first else 0 for kind in kinds}
    head = [f"{metric}, {about} ({sizes[kind]:,})" for kind, about in kinds.items() for metric in BY_TEXT]
    return ["Test texts that are also label texts, and the others:\n", table(["training data", *head], lines)]


def _of_kind(rows: Sequence[Row], kind: str, metric: str) -> str:
    values = [row["by_text"][kind][metric] for row in rows if kind in row["by_text"]]
    return figure(values) if values else ""


def _samples(rows: Rows, table: Table) -> list[str]:
    """Return the predictions of a few test texts, of the first system and seed."""
    systems = _systems(rows)
    if not systems:
        return []
    before, after = (rows[f"{systems[0]}: {name}"][0]["samples"] for name in ("D", "Z u D"))
    lines = [[old["text"], _best(old), _best(new)] for old, new in zip(before, after, strict=True)]
    about = f"Five test texts before and after ({systems[0]}, one seed), correct labels in bold:\n"
    return [about, table(["text", "D", "Z u D"], lines)]


def _best(sample: dict[str, Any]) -> str:
    return "<br>".join(
        f"**{label['text']}**" if label["relevant"] else label["text"] for label in sample["labels"][:3]
    ).replace("|", "\\|")
