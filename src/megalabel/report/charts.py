"""The charts of a report as data: learning curves, label frequency, P against PSP, calibration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from megalabel.report.results import Curves, Line, Results

__all__ = [
    "Chart", "Series", "all_charts", "calibration_chart", "frequency_charts", "learning_charts", "tail_chart",
    "threshold_chart", "trade_off_chart",
]  # fmt: skip

VALIDATION = ("P@1", "PSP@5")
SECONDS = 180.0  # longer runs are drawn in minutes
SPAN = 5.0  # points that an axis of percentages covers at least
GREY = 7  # of the palette, for bars that others are compared with
BEYOND = 2.5  # a chart of label sets ends at so many times the chosen labels per text
FIGURES = {"precision": "precision", "recall": "recall", "micro F1": "micro_f1", "sample F1": "sample_f1"}


@dataclass(frozen=True)
class Series:
    """A line, one bar in every group, a point, or a row of joined points."""

    name: str
    x: tuple[float, ...]  # of bars: the number of the group
    y: tuple[float, ...]
    colour: int  # number in the palette; -1 for a legend entry that explains a shape
    shape: int = 0  # of a point, or the dashes of a line
    marks: tuple[str, ...] = ()  # text beside each of the joined points


@dataclass(frozen=True)
class Chart:
    """Lines, grouped bars or points, and the words that go with them."""

    kind: Literal["line", "bar", "point"]
    name: str  # of its file
    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    about: str  # how to read it, in one or two sentences
    groups: tuple[str, ...] = ()  # of bars
    keys: tuple[Series, ...] = ()  # legend entries, if these are not the series
    span: float = 0.0  # what each axis (of lines: the upright one) covers at least: small differences look small

    @property
    def legend(self) -> tuple[Series, ...]:
        """The entries of the legend; none for a single series."""
        return self.keys or (self.series if len(self.series) > 1 else ())

    def description(self) -> str:
        """Return the chart in words, for readers who cannot see it."""
        parts = []
        for series in self.series:
            if self.kind == "bar":
                words = ", ".join(f"{group} {y:.2f}" for group, y in zip(self.groups, series.y, strict=True))
            elif self.kind == "line":
                words = f"from {series.y[0]:.4g} to {series.y[-1]:.4g}"
            else:
                points = [
                    f"{self.x_label} {x:.2f}, {self.y_label} {y:.2f}" for x, y in zip(series.x, series.y, strict=True)
                ]
                words = " to ".join(dict.fromkeys((points[0], points[-1])))
            parts.append(f"{series.name}: {words}")
        return f"{self.title}. {'; '.join(parts)}."


def learning_charts(runs: Sequence[Results]) -> list[Chart]:
    """Return training loss and validation metrics over training: by phase for one run, by run for many."""
    curves = {run.name: Curves(run.log) for run in runs}
    timed = all(curve.timed for curve in curves.values())
    if len(runs) == 1:
        only = curves[runs[0].name]
        losses = {phase: only.loss(phase, timed=timed) for phase in only.phases}
        metrics = {name: only.validation(name, timed=timed) for name in VALIDATION}
        charts = [("validation", "Metrics on validation rows", "percent", metrics)]
    else:
        losses = {name: curve.loss("select", timed=timed) for name, curve in curves.items()}
        charts = [
            (
                f"validation-{metric.replace('@', '-at-')}",
                f"{metric} on validation rows",
                "percent",
                {name: curve.validation(metric, timed=timed) for name, curve in curves.items()},
            )
            for metric in VALIDATION
        ]
    about = {
        "loss": "Different losses have different scales: compare the shapes of the lines, not their heights."
        + (" Gaps are pauses, in which negatives are mined or validation rows are searched." if timed else ""),
        "validation": _what_is_validated(runs),
    }
    charts.insert(0, ("loss", "Training loss", "loss", losses))
    return [
        chart
        for name, title, unit, lines in charts
        if (chart := _lines(name, title, unit, lines, about[name.partition("-")[0]], timed=timed))
    ]


def _what_is_validated(runs: Sequence[Results]) -> str:
    """Say what is measured on validation rows during training."""
    if any(run.fused for run in runs):
        several = any(len(run.recipe["heads"]) > 1 for run in runs)
        heads = "The sum of the network's heads with equal weights" if several else "The network's head"
        return f"{heads}: heads fitted after training, and the fusion of all, are not included yet."
    if any(len(run.weights) > 1 for run in runs):
        return "All heads together with equal weights; the weights are chosen after training."
    return "The network's head."


def frequency_charts(runs: Sequence[Results]) -> list[Chart]:
    """Return P@5 split by label frequency, as bars: by head for one run, by run for many."""
    titles = {
        "groups": (
            "P@5 by fixed limits",
            "Hits on the labels of each group; the bars of one colour add up to P@5. Head: more than 100 training "
            "points, torso: 10 to 100, tail: 1 to 9, unseen: none.",
        ),
        "bins": (
            "P@5 by equal volume",
            "Labels from the most frequent to the rarest, in bins that hold equally many training positives; the bars "
            "of one colour add up to P@5.",
        ),
    }
    reports = runs[0].heads if len(runs) == 1 else {run.name: run.best for run in runs}
    charts = []
    for key, (title, about) in titles.items():
        bins = [number for number, part in enumerate(runs[0].best[key]) if part["labels"]]
        if not bins:
            continue
        series = tuple(
            Series(name, tuple(range(len(bins))), tuple(report[key][number]["P@5"] for number in bins), colour)
            for colour, (name, report) in enumerate(reports.items())
        )
        groups = tuple(runs[0].best[key][number]["name"] for number in bins)
        charts.append(Chart("bar", f"frequency-{key}", title, "label frequency", "part of P@5", series, about, groups))
    return charts


def trade_off_chart(runs: Sequence[Results]) -> Chart | None:
    """Return P@5 against PSP@5, a point for each run and head; None if PSP was not measured."""
    if not all("PSP@5" in report["metrics"] for run in runs for report in run.heads.values()):
        return None
    heads = list(dict.fromkeys(head for run in runs for head in run.heads))
    series = tuple(
        Series(
            head if len(runs) == 1 else run.name if len(heads) == 1 else f"{run.name}, {head}",
            (report["metrics"]["P@5"],),
            (report["metrics"]["PSP@5"],),
            heads.index(head) if len(runs) == 1 else number,
            heads.index(head),
        )
        for number, run in enumerate(runs)
        for head, report in run.heads.items()
    )
    keys: tuple[Series, ...] = ()
    if len(runs) > 1 and len(heads) > 1:  # colours tell runs, shapes tell heads
        keys = tuple(Series(run.name, (), (), number) for number, run in enumerate(runs))
        keys += tuple(Series(head, (), (), -1, shape) for shape, head in enumerate(heads))
    about = (
        "Further right: more of the first five labels are correct. Further up: more of the rare correct labels are "
        "found. A model above and to the right of another is better on both counts; otherwise it depends on what a "
        "rare label is worth to you."
    )
    return Chart("point", "p-against-psp", "P@5 against PSP@5", "P@5", "PSP@5", series, about, keys=keys)


def tail_chart(runs: Sequence[Results]) -> Chart | None:
    """Return P@5 against PSP@5 of fused models over ``tail``; None without a fused model."""
    series = tuple(
        Series(
            run.name,
            tuple(metrics["P@5"] for metrics in run.trade_off),
            tuple(metrics["PSP@5"] for metrics in run.trade_off),
            number,
            marks=tuple(f"{metrics['tail']:g}" for metrics in run.trade_off),
        )
        for number, run in enumerate(runs)
        if run.trade_off and "PSP@5" in run.trade_off[0]
    )
    about = (
        "A fused model ranks by probability times inverse propensity to the power of tail; tail can be chosen at "
        "prediction time and is written beside each point. Values above 0 favour rare labels. Both axes cover equally "
        f"much, at least {SPAN:g} points."
    )
    if not series:
        return None
    return Chart("point", "tail", "P@5 against PSP@5 by tail", "P@5", "PSP@5", series, about, span=SPAN)


def calibration_chart(runs: Sequence[Results]) -> Chart | None:
    """Return observed against predicted probability; None without a fused model."""
    fused = [(number, run.name, run.calibration) for number, run in enumerate(runs) if run.calibration]
    if not fused:
        return None
    first = fused[0][2]["bins"]
    filled = [number for number in range(len(first)) if any(result["bins"][number]["labels"] for _, _, result in fused)]
    across, bins = tuple(range(len(filled))), [first[number] for number in filled]
    if len(runs) == 1:
        series = tuple(
            Series(key, across, tuple(part[key] for part in bins), colour)
            for key, colour in (("predicted", GREY), ("observed", 0))
        )
    else:
        middle = tuple((part["low"] + part["high"]) / 2 for part in bins)
        observed = (tuple(result["bins"][number]["observed"] for number in filled) for _, _, result in fused)
        series = (
            Series("as predicted", across, middle, GREY),
            *(
                Series(f"{name}, observed", across, shares, number)
                for (number, name, _), shares in zip(fused, observed, strict=True)
            ),
        )
    errors = ", ".join(
        f"{'' if len(runs) == 1 else f'{name} '}{result['error']:.1f} points" for _, name, result in fused
    )
    about = (
        "The five most probable labels of each text, binned by predicted probability, and the share of them that is "
        f"correct. Bars of equal height mean well-calibrated probabilities. Expected calibration error: {errors}."
    )
    groups = tuple(f"{(part['low'] + part['high']) / 2:g}" for part in bins)
    title, x_label = "Predicted and observed probability", "predicted probability, percent, ± 5"
    return Chart("bar", "calibration", title, x_label, "percent", series, about, groups)


def threshold_chart(runs: Sequence[Results]) -> Chart | None:
    """Return precision, recall and F1 of the labels above a threshold over their number, or micro F1 of every run.

    None if no run has a threshold.
    """
    chosen = [(number, run.name, sets) for number, run in enumerate(runs) if (sets := run.best.get("threshold"))]
    if not chosen:
        return None
    series = []
    for number, name, sets in chosen:
        end = max(BEYOND * sets["labels_per_text"], 2.0)
        curve = [point for point in sets["curve"] if point["labels_per_text"] <= end]
        for colour, (title, key) in enumerate(FIGURES.items() if len(runs) == 1 else [(name, "micro_f1")]):
            points = sorted({(point["labels_per_text"], point[key]) for point in curve})
            if points:
                x, y = zip(*points, strict=True)
                series.append(Series(title, x, y, colour if len(runs) == 1 else number))
        mark = "chosen" if len(runs) == 1 else f"{name}, chosen"
        series.append(Series(mark, (sets["labels_per_text"],), (sets["micro_f1"],), GREY if len(runs) == 1 else number))
    about = (
        "Every point is a threshold: the higher it is, the fewer labels a text gets, and the more of them are correct. "
        f"The chosen one was best for {chosen[0][2]['goal']} on validation texts; these are the rows of this report."
    )
    what = "Labels above a threshold" if len(runs) == 1 else "Micro F1 of the labels above a threshold"
    return Chart("line", "threshold", what, "labels per text", "percent", tuple(series), about)


def all_charts(runs: Sequence[Results]) -> list[Chart]:
    """Return all charts of a page, in its order."""
    single = [trade_off_chart(runs), tail_chart(runs), calibration_chart(runs), threshold_chart(runs)]
    return [*(chart for chart in single if chart is not None), *frequency_charts(runs), *learning_charts(runs)]


def _lines(name: str, title: str, unit: str, lines: dict[str, Line], about: str, *, timed: bool) -> Chart | None:
    longest = max((line[-1][0] for line in lines.values() if line), default=None)
    if longest is None:
        return None
    minutes = timed and longest > SECONDS
    x_label = "minutes of training" if minutes else "seconds of training" if timed else "steps"
    series = tuple(
        Series(key, tuple(x / 60 if minutes else x for x, _ in line), tuple(y for _, y in line), number, number // 8)
        for number, (key, line) in enumerate(lines.items())
        if line
    )
    return Chart("line", name, title, x_label, unit, series, about, span=SPAN if unit == "percent" else 0.0)
