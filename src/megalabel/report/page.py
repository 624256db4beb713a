"""One HTML page for one run or many: no scripts, no other files; light and dark; for screen and paper."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from megalabel._version import __version__
from megalabel.recipes.load_recipe import dump_recipe, make_recipe
from megalabel.report._html import STYLE, escaped
from megalabel.report.charts import (
    Chart,
    calibration_chart,
    frequency_charts,
    learning_charts,
    tail_chart,
    threshold_chart,
    trade_off_chart,
)
from megalabel.report.draw_chart import WIDTH, draw_svg
from megalabel.report.results import Results
from megalabel.report.tables import (
    bins_table,
    calibration_table,
    cost_table,
    every_metric_table,
    metrics_table,
    recipe_table,
    tail_table,
    threshold_table,
)
from megalabel.wording import counted

__all__ = ["choose_samples", "make_page"]

NARROW = 344  # width of a chart in a row of three
SAMPLES = 4  # of each kind, right and wrong
MISSED = 3  # missed labels that are named


def make_page(runs: Sequence[Results]) -> str:
    """Return the report as HTML; all texts are escaped.

    Args:
        runs: at least one; all were measured on the same rows.
    """
    sections = {
        "Metrics": _metrics(runs),
        "P against PSP": _trade_off(runs),
        "Calibration": _calibration(runs),
        "Number of labels": _number_of_labels(runs),
        "Label frequency": _frequency(runs),
        "Learning curves": _figures(learning_charts(runs)),
        "Size and speed": _costs(runs),
        "Recipe" if len(runs) == 1 else "Recipes": _recipes(runs),
        "Predictions": _predictions(runs),
    }
    body = {title: content for title, content in sections.items() if content}
    links = "".join(f'<li><a href="#{_anchor(title)}">{title}</a></li>' for title in body)
    parts = "".join(
        f'<section aria-labelledby="{_anchor(title)}"><h2 id="{_anchor(title)}">{title}</h2>{content}</section>\n'
        for title, content in body.items()
    )
    title = escaped(_title(runs))
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f"<title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n"
        f'<header><h1>{title}</h1><p class="soft">{escaped(_facts(runs))}</p>'
        f'<nav aria-label="Sections"><ul>{links}</ul></nav></header>\n'
        f"<main>\n{parts}</main>\n<footer>megalabel {__version__}</footer>\n</body>\n</html>\n"
    )


def _title(runs: Sequence[Results]) -> str:
    if len(runs) == 1:
        return f"{runs[0].recipe['name']} on {runs[0].data['name']}"
    return f"{len(runs)} runs on {runs[0].data['name']}"


def _facts(runs: Sequence[Results]) -> str:
    report = runs[0].best
    texts = counted(report["rows"], f"{runs[0].data['split']} text")
    facts = f"{texts}, {counted(report['labels'], 'label')}. All metrics in percent."
    constants = report["propensity"]
    if constants and constants["A"] is not None:
        facts += f" Propensities with A = {constants['A']:g}, B = {constants['B']:g}, N = {constants['points']:,}."
    return facts


def _metrics(runs: Sequence[Results]) -> str:
    every = every_metric_table(runs).html()
    return f"{metrics_table(runs).html()}<details><summary>All metrics at all cut-offs</summary>{every}</details>"


def _trade_off(runs: Sequence[Results]) -> str:
    charts = [chart for chart in (trade_off_chart(runs), tail_chart(runs)) if chart is not None]
    table = tail_table(runs)
    details = "" if table is None else f"<details><summary>Metrics by tail</summary>{table.html()}</details>"
    return _figures(charts) + details


def _calibration(runs: Sequence[Results]) -> str:
    chart, table = calibration_chart(runs), calibration_table(runs)
    if chart is None or table is None:
        return ""
    return f"{_figures([chart])}<details><summary>The same as a table</summary>{table.html()}</details>"


def _number_of_labels(runs: Sequence[Results]) -> str:
    chart, table = threshold_chart(runs), threshold_table(runs)
    return "" if chart is None or table is None else f"{table.html()}{_figures([chart])}"


def _frequency(runs: Sequence[Results]) -> str:
    charts = frequency_charts(runs)
    if not charts:
        return ""
    tables = "".join(bins_table(runs, key).html() for key in ("groups", "bins"))
    return f"{_figures(charts)}<details><summary>The same as tables</summary>{tables}</details>"


def _figures(charts: Sequence[Chart]) -> str:
    kind = {1: " one", 3: " three"}.get(len(charts), "")
    width = NARROW if len(charts) == 3 else WIDTH
    return f'<div class="plots{kind}">{"".join(_figure(chart, width) for chart in charts)}</div>' if charts else ""


def _figure(chart: Chart, width: int) -> str:
    return (
        f"<figure><h3>{escaped(chart.title)}</h3>{draw_svg(chart, width)}"
        f"<figcaption>{escaped(chart.about)}</figcaption></figure>"
    )


def _costs(runs: Sequence[Results]) -> str:
    about = "Prediction speed is measured on a few texts in one batch, on the machine that wrote this report."
    if any(run.fused for run in runs):
        about += (
            " Time and memory of training are those of the network, without the heads that are fitted after it; the "
            "weights of a fused run are the shares of the heads in the fused score."
        )
    return f"<p>{about}</p>{cost_table(runs).html()}"


def _recipes(runs: Sequence[Results]) -> str:
    table = recipe_table(runs)
    same = "The recipes are the same." if len(runs) > 1 else "The recipe was used unchanged."
    differs = "" if table is None else table.html() if table.rows else f"<p>{same}</p>"
    whole = "".join(
        f"<details><summary>The whole recipe{'' if len(runs) == 1 else f' of {escaped(run.name)}'}</summary>"
        f"<pre>{escaped(dump_recipe(make_recipe(run.recipe)))}</pre></details>"
        for run in runs
    )
    return differs + whole


def _predictions(runs: Sequence[Results]) -> str:
    first = "" if len(runs) == 1 else f" by {escaped(runs[0].name)}"
    wide = "" if len(runs) == 1 else " wide"
    parts = []
    for title, numbers in zip(("Best label correct", "Best label wrong"), choose_samples(runs), strict=True):
        if numbers:
            blocks = "".join(_sample(runs, number) for number in numbers)
            parts.append(f'<h3>{title}{first}</h3><div class="samples{wide}">{blocks}</div>')
    about = "The five best labels of some texts; ✓ marks the correct ones."
    if len(runs) > 1:
        about += " Texts on which the runs differ come first."
    return f"<p>{about}</p>{''.join(parts)}" if parts else ""


def choose_samples(runs: Sequence[Results], count: int = SAMPLES) -> tuple[list[int], list[int]]:
    """Return numbers of samples whose best label is correct in the first run, and of samples where it is wrong.

    Samples on which the runs differ are preferred; otherwise they are spread over the set.
    """
    correct: list[int] = []
    wrong: list[int] = []
    for number in range(len(runs[0].samples)):
        (correct if _correct(runs[0], number) else wrong).append(number)
    return _choose(runs, correct, count), _choose(runs, wrong, count)


def _choose(runs: Sequence[Results], numbers: list[int], count: int) -> list[int]:
    differ = [number for number in numbers if len({_correct(run, number) for run in runs}) > 1]
    same = [number for number in numbers if number not in set(differ)]
    chosen = _spread(differ, count)
    return sorted(chosen + _spread(same, count - len(chosen)))


def _sample(runs: Sequence[Results], number: int) -> str:
    """Return a text with the best labels of every run, the correct ones marked."""
    lists = "".join(
        f"<div>{'' if len(runs) == 1 else f'<h5>{escaped(run.name)}</h5>'}{_best_labels(run.samples[number])}</div>"
        for run in runs
    )
    text = escaped(runs[0].samples[number]["text"])
    return f'<article><h4 dir="auto">{text}</h4><div class="side">{lists}</div></article>'


def _best_labels(sample: dict[str, Any]) -> str:
    entries = []
    for label in sample["labels"]:
        kind = ' class="correct"' if label["relevant"] else ""
        mark = '<span aria-hidden="true">✓</span>' if label["relevant"] else "<span></span>"
        spoken = '<span class="unseen">correct: </span>' if label["relevant"] else ""
        entries.append(
            f"<li{kind}>{mark}<span>{spoken}<bdi>{escaped(label['text'])}</bdi></span>"
            f'<span class="score">{label["score"]:.3f}</span></li>'
        )
    missed = sample["missed"]
    named = " · ".join(f"<bdi>{escaped(text)}</bdi>" for text in missed[:MISSED])
    more = f" and {len(missed) - MISSED:,} more" if len(missed) > MISSED else ""
    tail = f'<p class="soft">Not found: {named}{more}</p>' if missed else ""
    return f"<ol>{''.join(entries)}</ol>{tail}"


def _correct(run: Results, number: int) -> bool:
    labels = run.samples[number]["labels"]
    return bool(labels) and bool(labels[0]["relevant"])


def _spread(numbers: list[int], count: int) -> list[int]:
    """Return up to ``count`` of the numbers, evenly spread over the list."""
    size = len(numbers)
    return [numbers[size * part // count] for part in range(count)] if size > count else numbers


def _anchor(title: str) -> str:
    return title.lower().replace(" ", "-")
