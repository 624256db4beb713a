"""Text and pictures of docs/figures.md, from the results of the scripts named there."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

IMAGES = Path(__file__).resolve().parent / "img"
BLUE, RED, GREY, GREEN, INK = "#2f6fb7", "#c8443c", "#9a9a96", "#3a9a6b", "#2b2b2b"
LOSSES = {"softmax": ("softmax", RED), "decoupled_softmax": ("decoupled softmax", BLUE)}
EASY = {**LOSSES, "soft_top_k": ("soft top-5", GREEN)}
SCORES = {"cosine": "cosines, temperature 0.05", "inner_product": "inner products"}
PICKS = {"one": (GREY, "one positive picked"), "three": (BLUE, "up to three"), "all": (GREEN, "all")}

Result = dict[str, Any]
Table = Callable[[list[str], list[list[str]]], str]


def gradients_text(table: Table, stored: Result, where: str) -> str:
    """Say how far the gradients of positives spread, at some points of training."""
    rows = []
    for loss, (name, _) in LOSSES.items():
        points = stored["curves"][loss]
        for share in (0, 0.1, 0.5, 1):
            point = points[round(share * (len(points) - 1))]
            cells = [f"{point[key]:+.3f}" if "mean" in key else f"{point[key]:.3f}" for key in list(point)[1:]]
            rows.append([name, str(point["step"]), *cells])
    head = ["loss", "step", "label: mean", "deviation", "example: mean", "deviation"]
    about = (
        f"{stored['data']}, label *{stored['label']}* with {stored['points']:,} train points; example: a point with "
        f"{stored['example_positives']} positives. `{stored['recipe']}`, {stored['epochs']} epochs, one seed; {where}."
    )
    return f"![Gradients of positives](img/positive-gradients.svg)\n\n{table(head, rows)}\n{about}\n"


def easy_text(table: Table, stored: Result, where: str) -> str:
    """Say how often the easy positive, and any positive, is first at some points of training."""
    rows = []
    for scores, title in SCORES.items():
        for loss, (name, _) in EASY.items():
            points = stored["curves"][scores][loss]
            best = max(points, key=lambda point: point["easy_first"])
            for point, when in ((best, "at its best"), (points[-1], "at the end")):
                shares = [f"{point[key]:.1f}%" for key in ("easy_first", "positive_first")]
                rows.append([title, name, when, str(point["step"]), *shares])
    about = (
        f"`{stored['data']}`: {stored['points']:,} train texts with {stored['positives']} labels each, "
        f"{stored['labels']:,} labels; {stored['epochs']} epochs, one seed; {where}."
    )
    head = ["scores", "loss", "", "step", "the easy one is first", "any of the five is first"]
    return f"![The easy positive over training](img/easy-positive-trained.svg)\n\n{table(head, rows)}\n{about}\n"


def graph_text(stored: Result, where: str) -> str:
    """Say what the pictures of the label graph show."""
    lines = ["![Label graph of one label](img/label-graph.svg)\n"]
    for row in stored["rows"]:
        text = row["label"].partition(":")[0]
        lines.append(
            f"- {row['data']}, *{text}*, {row['nodes'][0]['points']} train points: {row['targets']} other labels are "
            f"above delta {stored['delta']:g}; its own train row has {row['known']} labels, {row['confirmed']} of them "
            "among these."
        )
    return "\n".join(lines) + f"\n\n{where[0].upper()}{where[1:]}.\n"


def pool_text(table: Table, stored: Result, where: str) -> str:
    """Return the positives in the pool at the largest batch of each set."""
    rows = []
    for data in dict.fromkeys(row["data"] for row in stored["rows"]):
        own = [row for row in stored["rows"] if row["data"] == data]
        largest = max(row["batch_size"] for row in own)
        rows += [
            [data, f"{row['batch_size']:,}", row["order"], row["pick"], f"{row['pool_size']:,.0f}",
             f"{row['positives_per_query']:.2f}", f"{row['positives_covered']:.0%}"]
            for row in own if row["batch_size"] in (largest, largest // 8)
        ]  # fmt: skip
    head = [
        "data",
        "batch",
        "order",
        "picked",
        "labels in the pool",
        "positives of a query in it",
        "share of its positives",
    ]
    return f"![Positives in the pool](img/pool-positives.svg)\n\n{table(head, rows)}\nSeed {stored['seed']}; {where}.\n"


def draw_figures(result: Callable[[str], Result]) -> list[Path]:
    """Draw the pictures whose results are there."""
    drawn = []
    pictures = {
        "easy_positive": _easy,
        "positive_gradients": _gradients,
        "label_graph": _graph,
        "pool_positives": _pool,
    }
    for name, picture in pictures.items():
        try:
            stored = result(name)
        except FileNotFoundError:
            continue
        drawn.append(picture(stored))
    return drawn


def _axes(columns: int, width: float, height: float) -> tuple[Any, list[Any]]:
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "megalabel"  # the same bytes every time
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, columns, figsize=(width * columns, height), squeeze=False, layout="constrained")
    for axis in axes[0]:
        axis.spines[["top", "right"]].set_visible(False)
    return figure, list(axes[0])


def _save(figure: Any, name: str) -> Path:
    import matplotlib.pyplot as plt

    path = IMAGES / f"{name}.svg"
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
    return path


def _easy(stored: Result) -> Path:
    figure, axes = _axes(2, 4.6, 3.3)
    for axis, (scores, title) in zip(axes, SCORES.items(), strict=True):
        for loss, (name, colour) in EASY.items():
            points = stored["curves"][scores][loss]
            steps, shares = ([point[key] for point in points] for key in ("step", "easy_first"))
            axis.plot(steps, shares, color=colour, label=name)
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("step")
        axis.set_ylim(0, 103)
    axes[0].set_ylabel("the easy positive is first, %")
    axes[1].legend(frameon=False)
    return _save(figure, "easy-positive-trained")


def _gradients(stored: Result) -> Path:
    figure, axes = _axes(2, 4.6, 3.3)
    titles = {
        "label": f"all {stored['points']} points of *{stored['label']}*".replace("*", "'"),
        "example": f"{stored['example_positives']} positives of one point",
    }
    for axis, (kind, title) in zip(axes, titles.items(), strict=True):
        for loss, (name, colour) in LOSSES.items():
            points = stored["curves"][loss]
            steps = [point["step"] for point in points]
            axis.plot(steps, [point[f"{kind}_deviation"] for point in points], color=colour, label=name)
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("step")
        axis.set_ylim(bottom=0)
        axis.legend(frameon=False)
    axes[0].set_ylabel("standard deviation of the gradient")
    return _save(figure, "positive-gradients")


def _graph(stored: Result) -> Path:
    figure, axes = _axes(len(stored["rows"]), 6.2, 5.6)
    for axis, row in zip(axes, stored["rows"], strict=True):
        nodes = row["nodes"]
        angles = [2 * math.pi * place / (len(nodes) - 1) + math.pi / 2 for place in range(len(nodes) - 1)]
        places = [(0.0, 0.0), *((math.cos(angle), math.sin(angle)) for angle in angles)]
        for a, b, weight in row["edges"]:
            (x, y), (u, v) = places[a], places[b]
            style = {"color": BLUE, "alpha": 0.9} if a == 0 else {"color": GREY, "alpha": 0.35}
            if b == 0:
                continue  # drawn from the label outwards
            axis.plot([x, u], [y, v], linewidth=0.5 + 4 * weight, zorder=1, solid_capstyle="round", **style)
            if a == 0:
                axis.text(0.55 * u, 0.55 * v, f"{weight:.2f}", fontsize=8, color=INK, ha="center", va="center",
                          bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8}, zorder=3)  # fmt: skip
        for place, ((x, y), node) in enumerate(zip(places, nodes, strict=True)):
            colour = INK if place == 0 else GREEN if node["confirmed"] else RED
            axis.scatter([x], [y], s=40 + 6 * min(node["points"], 60), color=colour, zorder=2)
            name = node["text"].partition(":")[0] if "::" not in node["text"] else node["text"].rpartition(": ")[0]
            label = "\n".join(textwrap.wrap(f"{name} ({node['points']})", 20))
            plate = {"facecolor": "white", "edgecolor": "none", "pad": 0.8, "alpha": 0.85} if place == 0 else None
            axis.text(1.17 * x, 1.17 * y - (0.12 if place == 0 else 0), label, fontsize=8, color=INK, zorder=4,
                      bbox=plate,
                      ha="center" if abs(x) < 0.2 else "left" if x > 0 else "right",
                      va="top" if place == 0 or y < -0.9 else "bottom" if y > 0.9 else "center")  # fmt: skip
        axis.set_title(row["data"], fontsize=10)
        axis.set_xlim(-1.9, 1.9)
        axis.set_ylim(-1.5, 1.5)
        axis.axis("off")
    return _save(figure, "label-graph")


def _pool(stored: Result) -> Path:
    names = list(dict.fromkeys(row["data"] for row in stored["rows"]))
    figure, axes = _axes(len(names), 4.2, 3.6)
    for axis, data in zip(axes, names, strict=True):
        for order, style in (("shuffled", "--"), ("clustered", "-")):
            for pick, (colour, about) in PICKS.items():
                rows = [r for r in stored["rows"] if (r["data"], r["order"], r["pick"]) == (data, order, pick)]
                sizes, found = ([r[key] for r in rows] for key in ("pool_size", "positives_per_query"))
                axis.plot(sizes, found, f"o{style}", color=colour, markersize=3, label=f"{about}, {order}")
        axis.set_xscale("log")
        axis.set_title(data, fontsize=10)
        axis.set_xlabel("labels in the pool")
        axis.set_ylim(bottom=0)
    axes[0].set_ylabel("positives of a query in the pool")
    axes[0].legend(frameon=False, fontsize=7)
    return _save(figure, "pool-positives")
