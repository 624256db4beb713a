"""Tables and pictures of the Gandalf study, from results/gandalf.json and results/published.json."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

IMAGES = Path(__file__).resolve().parent / "img"
PAPER_DATA = "LF-AmazonTitles-131K"
NAMES = ["P@1", "P@5", "PSP@1", "PSP@5"]
BLUE, RED, GREY = "#2f6fb7", "#c8443c", "#9a9a96"

Rows = dict[str, dict[str, Any]]
Table = Callable[[list[str], list[list[str]]], str]


def label_features_text(table: Table, stored: dict[str, Any], where: str) -> str:
    """Return time and memory of a step with each kind of head, beside free vectors, and the spread of the ratios."""
    plain = {(row["data"], row["encoder"]): row for row in stored["rows"] if row["name"] == "free vectors"}
    lines = []
    ratios: dict[str, list[tuple[float, float]]] = {}
    for row in stored["rows"]:
        base = plain[row["data"], row["encoder"]]
        held, peak, peak_base = (
            each[name] - each["begun_mib"] for each, name in ((row, "held_mib"), (row, "peak_mib"), (base, "peak_mib"))
        )
        time = row["ms_per_1000_rows"] / base["ms_per_1000_rows"]
        if row is not base:
            ratios.setdefault(row["name"], []).append((time, peak / peak_base))
        lines.append(
            [row["data"], row["encoder"], row["name"], f"{row['ms_per_1000_rows']:.0f}", f"{time:.2f}x",
             f"{held:,.0f}", f"{peak:,.0f}", f"{peak / peak_base:.2f}x"]
        )  # fmt: skip
    head = ["data", "encoder", "labels", "CPU ms per 1,000 rows", "", "MiB held", "peak MiB", ""]
    spans = "; ".join(
        f"{name}: {_span([time for time, _ in each])} the time, {_span([peak for _, peak in each])} the peak memory"
        for name, each in ratios.items()
    )
    first = stored["rows"][0]
    rounds = sorted({row["rounds"] for row in stored["rows"]})
    steps = f"{first['steps']} steps, median of {' or '.join(map(str, rounds))} round(s), one thread"
    about = "Memory is what the training adds to the data and the libraries."
    return f"{spans}.\n\n{table(head, lines)}\n{about} {steps}; {where}.\n"


def _span(values: list[float]) -> str:
    return f"{min(values):.1f} to {max(values):.1f} times"


def study_text(study: dict[str, Any], published: dict[str, Any], table: Table, where: str) -> str:
    """Return all tables, one section for each data set."""
    paper = _published_systems(study["rows"]) | published["gandalf"]["metrics"]
    parts = []
    for data in dict.fromkeys(row["data"] for row in study["rows"]):
        rows = {row["name"]: row for row in study["rows"] if row["data"] == data}
        parts.append(f"### {data}\n")
        head = ["training data", *NAMES, "ms per step", "MiB", *(f"paper {name}" for name in NAMES)]
        lines = [
            [name, *_figures(row["metrics"]["all"], NAMES), _cost(row), f"{row['peak_mib']:,.0f}",
             *_figures(paper.get(name, {}), NAMES)]
            for name, row in rows.items()
            if "% of labels" not in name
        ]  # fmt: skip
        parts.append(table(head, lines))
        parts += _by_text(rows, table) + _coverage(rows, paper, table) + _samples(rows, table) + _pictures(data, rows)
    return "\n".join([*parts, f"Test rows, seed 0; {where}. The paper's columns: {published['gandalf']['source']}.\n"])


def _published_systems(rows: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Return the published figures of each system with and without Gandalf, by the names of rows."""
    from megalabel.recipes.published import load_published

    figures = {}
    for name, recipe in {row["name"].split(":")[0]: row["recipe"].removesuffix("-cpu") for row in rows}.items():
        own = {each.variant: dict(each.metrics) for each in load_published(recipe) if each.data == PAPER_DATA}
        if "gandalf" in own:
            figures |= {f"{name}: D": own[""], f"{name}: Z u D": own["gandalf"]}
    return figures


def _cost(row: dict[str, Any]) -> str:
    """Return the processor time of a run divided by its steps, evaluation and mining included."""
    return f"{1000 * row['cpu_seconds'] / row['steps']:.0f}" if "cpu_seconds" in row else ""


def _figures(metrics: dict[str, float], names: list[str]) -> list[str]:
    return [f"{metrics[name]:.2f}" if name in metrics else "" for name in names]


def _pair(rows: Rows) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Return D and Z u D of InceptionXML, if both were run."""
    names = ("InceptionXML: D", "InceptionXML: Z u D")
    return (rows[names[0]], rows[names[1]]) if all(name in rows for name in names) else None


def _coverage(rows: Rows, paper: dict[str, Any], table: Table) -> list[str]:
    pair = _pair(rows)
    if pair is None:
        return []
    names = [f"coverage@{k}" for k in (1, 3, 5)]
    lines = [
        [row["name"], *_figures(row["metrics"]["all"], names), *_figures(paper[row["name"]], names)] for row in pair
    ]
    about = "Coverage, the share of labels that are found for at least one text:\n"
    return [about, table(["", *names, *(f"paper {name}" for name in names)], lines)]


def _by_text(rows: Rows, table: Table) -> list[str]:
    """Return the effect of label rows on test texts that are also label texts, and on the others."""
    kinds = {"label": "text is a label text", "other": "other texts"}
    systems = [(name, row["by_text"]) for name, row in rows.items() if "by_text" in row and "% of labels" not in name]
    if not systems:
        return []
    lines = [
        [name, *(figure for kind in kinds for figure in _figures(parts.get(kind, {}), ["P@1", "PSP@5"]))]
        for name, parts in systems
    ]
    sizes = {kind: systems[0][1][kind]["rows"] if kind in systems[0][1] else 0 for kind in kinds}
    head = [f"{metric}, {about} ({sizes[kind]:,})" for kind, about in kinds.items() for metric in ("P@1", "PSP@5")]
    return ["Test texts that are also label texts, and the others:\n", table(["training data", *head], lines)]


def _samples(rows: Rows, table: Table) -> list[str]:
    pair = _pair(rows)
    if pair is None:
        return []
    before, after = (row["samples"] for row in pair)
    lines = [[old["text"], _best(old), _best(new)] for old, new in zip(before, after, strict=True)]
    return ["Five test texts before and after, correct labels in bold:\n", table(["text", "D", "Z u D"], lines)]


def _best(sample: dict[str, Any]) -> str:
    return "<br>".join(
        f"**{label['text']}**" if label["relevant"] else label["text"] for label in sample["labels"][:3]
    ).replace("|", "\\|")


def _pictures(data: str, rows: Rows) -> list[str]:
    """Name the pictures that :func:`draw` makes of these rows."""
    named = [("bins", "P@5 by label frequency"), ("steps", "validation metrics by training step")]
    named.append(("labels", "metrics by share of labels used"))
    pictures = [(kind, about) for kind, about in named if (IMAGES / f"gandalf-{kind}-{data}.svg").is_file()]
    return [f"![{about}, {data}](img/gandalf-{kind}-{data}.svg)\n" for kind, about in pictures]


def draw(study: dict[str, Any]) -> list[Path]:
    """Draw the pictures of every data set that has the rows for them."""
    written = []
    for data in dict.fromkeys(row["data"] for row in study["rows"]):
        rows = {row["name"]: row for row in study["rows"] if row["data"] == data}
        pair = _pair(rows)
        if pair is None:
            continue
        written += [_bins(data, pair), _steps(data, pair)]
        shares = {name: row for name, row in rows.items() if "% of labels" in name}
        if shares:
            written.append(_labels(data, pair, shares))
    return written


def _figure(columns: int) -> tuple[Any, list[Any]]:
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "megalabel"  # the same bytes every time
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, columns, figsize=(4.2 * columns, 3.2), squeeze=False, layout="constrained")
    for axis in axes[0]:
        axis.spines[["top", "right"]].set_visible(False)
    return figure, list(axes[0])


def _save(figure: Any, kind: str, data: str) -> Path:
    import matplotlib.pyplot as plt

    path = IMAGES / f"gandalf-{kind}-{data}.svg"
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
    return path


def _bins(data: str, pair: tuple[dict[str, Any], dict[str, Any]]) -> Path:
    figure, (axis,) = _figure(1)
    for place, (row, colour, name) in enumerate(zip(pair, (GREY, BLUE), ("D", "Z u D"), strict=True)):
        bins = row["bins"]
        axis.bar([i + 0.4 * place - 0.2 for i in range(len(bins))], [part["P@5"] for part in bins], 0.4,
                 color=colour, label=name)  # fmt: skip
    axis.set_xticks(range(len(pair[0]["bins"])), [f"{part['least']}-{part['largest']}" for part in pair[0]["bins"]])
    axis.set_xlabel("training points of a label")
    axis.set_ylabel("part of P@5, %")
    axis.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
    return _save(figure, "bins", data)


def _steps(data: str, pair: tuple[dict[str, Any], dict[str, Any]]) -> Path:
    figure, axes = _figure(2)
    for axis, metric in zip(axes, ("P@1", "PSP@5"), strict=True):
        for row, colour, name in zip(pair, (GREY, BLUE), ("D", "Z u D"), strict=True):
            points = row["curve"]
            axis.plot([p["step"] for p in points], [p[metric] for p in points], "o-", color=colour, label=name)
        axis.set_xlabel("step")
        axis.set_ylabel(f"{metric} on validation, %")
        axis.legend(frameon=False)
    return _save(figure, "steps", data)


def _labels(data: str, pair: tuple[dict[str, Any], dict[str, Any]], shares: Rows) -> Path:
    figure, axes = _figure(2)
    for axis, metric in zip(axes, ("P@1", "PSP@5"), strict=True):
        ends = [(0.0, pair[0]["metrics"]["all"][metric]), (100.0, pair[1]["metrics"]["all"][metric])]
        for sample, colour, about in (("uniform", GREY, "drawn uniformly"), ("tail", RED, "rare ones first")):
            own = [
                (float(name.split("%")[0].rsplit(" ", 1)[1]), row["metrics"]["all"][metric])
                for name, row in shares.items()
                if name.endswith(sample)
            ]
            points = sorted([ends[0], *own, ends[1]])
            axis.plot(*zip(*points, strict=True), "o-", color=colour, label=about)
        axis.set_xlabel("labels used, %")
        axis.set_ylabel(f"{metric}, %")
        axis.legend(frameon=False)
    return _save(figure, "labels", data)
