"""The plots of a report: learning curves, bars by label frequency, P against PSP."""

from __future__ import annotations

from collections.abc import Sequence

from megalabel.report.chart import Chart, Series
from megalabel.report.curves import Curves, Line
from megalabel.report.results import Results

__all__ = ["bin_plots", "learning_plots", "trade_off_plot"]

VALIDATION = ("P@1", "PSP@5")
SECONDS = 180.0  # longer runs are drawn over minutes


def learning_plots(runs: Sequence[Results]) -> list[Chart]:
    """Return training loss and validation metrics over training: by phase for one run, by run for many."""
    curves = {run.name: Curves(run.log) for run in runs}
    timed = all(one.timed for one in curves.values())
    if len(runs) == 1:
        only = curves[runs[0].name]
        losses = {phase: only.loss(phase, timed=timed) for phase in only.phases}
        metrics = {name: only.validation(name, timed=timed) for name in VALIDATION}
        charts = [("validation", "Metrics on validation rows", "percent", metrics)]
    else:
        losses = {name: one.loss("select", timed=timed) for name, one in curves.items()}
        charts = [
            (
                f"validation-{metric.replace('@', '-at-')}",
                f"{metric} on validation rows",
                "percent",
                {name: one.validation(metric, timed=timed) for name, one in curves.items()},
            )
            for metric in VALIDATION
        ]
    about = {
        "loss": "Losses of different kinds have scales of their own: look at the shape, not at the height.",
        "validation": "All heads together"
        + (", each counting the same; weights are chosen after training." if len(runs[0].weights) > 1 else "."),
    }
    drawn = [("loss", "Training loss", "loss", losses), *charts]
    return [
        chart
        for name, title, unit, lines in drawn
        if (chart := _lines(name, title, unit, lines, about[name.partition("-")[0]], timed=timed))
    ]


def bin_plots(runs: Sequence[Results]) -> list[Chart]:
    """Return the parts of P@5 by label frequency, as bars: by head for one run, by run for many."""
    titles = {
        "groups": (
            "P@5 by fixed limits",
            "Hits on labels of each group; the bars of one colour add up to P@5. Head: more than 100 training points, "
            "torso: 10 to 100, tail: 1 to 9, unseen: none.",
        ),
        "bins": (
            "P@5 by equal volume",
            "Labels from the most frequent to the rarest, cut so that each bin holds as many training positives; the "
            "bars of one colour add up to P@5.",
        ),
    }
    lines = runs[0].heads if len(runs) == 1 else {run.name: run.best for run in runs}
    charts = []
    for key, (title, about) in titles.items():
        parts = [place for place, part in enumerate(runs[0].best[key]) if part["labels"]]
        if not parts:
            continue
        series = tuple(
            Series(name, tuple(range(len(parts))), tuple(report[key][place]["P@5"] for place in parts), number)
            for number, (name, report) in enumerate(lines.items())
        )
        groups = tuple(runs[0].best[key][place]["name"] for place in parts)
        charts.append(Chart("bar", f"frequency-{key}", title, "label frequency", "part of P@5", series, about, groups))
    return charts


def trade_off_plot(runs: Sequence[Results]) -> Chart | None:
    """Return P@5 against PSP@5, one point for each run and head; nothing where there is no PSP."""
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
        keys += tuple(Series(head, (), (), -1, place) for place, head in enumerate(heads))
    about = (
        "To the right: more of the first five labels are right. Upwards: more of the rare right labels are found. A "
        "model up and to the right of another is better for every taste; otherwise it depends on what a rare label is "
        "worth."
    )
    return Chart("point", "p-against-psp", "P@5 against PSP@5", "P@5", "PSP@5", series, about, keys=keys)


def _lines(name: str, title: str, unit: str, lines: dict[str, Line], about: str, *, timed: bool) -> Chart | None:
    known = {key: line for key, line in lines.items() if line}
    if not known:
        return None
    longest = max(line[-1][0] for line in known.values())
    minutes = timed and longest > SECONDS
    x_label = "minutes of training" if minutes else "seconds of training" if timed else "steps"
    series = tuple(
        Series(key, tuple(x / 60 if minutes else x for x, _ in line), tuple(y for _, y in line), place, place // 8)
        for place, (key, line) in enumerate(lines.items())
        if line
    )
    return Chart("line", name, title, x_label, unit, series, about)
