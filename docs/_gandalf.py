"""Pictures of the Gandalf study, from results/gandalf.json, and what label features cost; tables: _label_rows.py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

IMAGES = Path(__file__).resolve().parent / "img"
BLUE, RED, GREY = "#2f6fb7", "#c8443c", "#9a9a96"

DRAWN = ("InceptionXML: D", "InceptionXML: Z u D")

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


def pictures_of(data: str) -> list[str]:
    """Name the pictures that :func:`draw` makes of a data set."""
    named = [("bins", "P@5 by label frequency"), ("steps", "validation metrics by training step")]
    named.append(("labels", "metrics by share of labels used"))
    pictures = [(kind, about) for kind, about in named if (IMAGES / f"gandalf-{kind}-{data}.svg").is_file()]
    return [f"![{about}, {data}](img/gandalf-{kind}-{data}.svg)\n" for kind, about in pictures]


def draw(study: dict[str, Any]) -> list[Path]:
    """Draw the pictures of every data set that has the rows for them, of the set-up with enough epochs if it is run."""
    written = []
    for data in dict.fromkeys(row["data"] for row in study["rows"]):
        rows, pair = _rows_of(study["rows"], data)
        if pair is None:
            continue
        written += [_bins(data, pair), _steps(data, pair)]
        shares = {name: row for name, row in rows.items() if "% of labels" in name}
        if shares:
            written.append(_labels(data, pair, shares))
    return written


def _rows_of(every: list[dict[str, Any]], data: str) -> tuple[Rows, tuple[dict[str, Any], dict[str, Any]] | None]:
    """Return the rows of one set-up by name, of the first seed, and D and Z u D of InceptionXML."""
    pair = None
    rows: Rows = {}
    for new in (True, False):
        own = [row for row in every if row["data"] == data and ("cpu_minutes" in row) == new]
        rows = {row["name"]: row for row in sorted(own, key=lambda row: -row["seed"])}
        if all(name in rows for name in DRAWN):
            pair = (rows[DRAWN[0]], rows[DRAWN[1]])
            break
    return rows, pair


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
