"""One HTML page for one run or many: no script, no other file, light and dark, on screen and on paper."""

from __future__ import annotations

from collections.abc import Sequence

from megalabel._version import __version__
from megalabel.recipes.load_recipe import dump_recipe, make_recipe
from megalabel.report._style import STYLE
from megalabel.report.chart import Chart
from megalabel.report.draw_svg import draw_svg, draw_swatch
from megalabel.report.escaped import escaped
from megalabel.report.plots import bin_plots, calibration_plot, learning_plots, tail_plot, trade_off_plot
from megalabel.report.results import Results
from megalabel.report.samples import choose_samples, sample_html
from megalabel.report.tables import (
    bins_table,
    calibration_table,
    cost_table,
    every_metric_table,
    metrics_table,
    recipe_table,
    tail_table,
)

__all__ = ["make_page"]


def make_page(runs: Sequence[Results]) -> str:
    """Return the report as HTML; every text in it, whoever wrote it, is escaped.

    Args:
        runs: at least one, all measured on the same rows.
    """
    sections = {
        "Metrics": _metrics(runs),
        "P against PSP": _trade_off(runs),
        "Calibration": _calibration(runs),
        "Label frequency": _frequency(runs),
        "Learning curves": _figures(learning_plots(runs)),
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
    facts = f"{report['rows']:,} {runs[0].data['split']} texts, {report['labels']:,} labels. All metrics in percent."
    constants = report["propensity"]
    if constants and constants["A"] is not None:
        facts += f" Propensities with A = {constants['A']:g}, B = {constants['B']:g}, N = {constants['points']:,}."
    return facts


def _metrics(runs: Sequence[Results]) -> str:
    every = every_metric_table(runs).html()
    return f"{metrics_table(runs).html()}<details><summary>All metrics at all cut-offs</summary>{every}</details>"


def _trade_off(runs: Sequence[Results]) -> str:
    plots = [plot for plot in (trade_off_plot(runs), tail_plot(runs)) if plot is not None]
    table = tail_table(runs)
    figures = "" if table is None else f"<details><summary>Metrics by tail</summary>{table.html()}</details>"
    return _figures(plots) + figures


def _calibration(runs: Sequence[Results]) -> str:
    plot, table = calibration_plot(runs), calibration_table(runs)
    if plot is None or table is None:
        return ""
    return f"{_figures([plot])}<details><summary>The same in figures</summary>{table.html()}</details>"


def _frequency(runs: Sequence[Results]) -> str:
    plots = bin_plots(runs)
    if not plots:
        return ""
    tables = "".join(bins_table(runs, key).html() for key in ("groups", "bins"))
    return f"{_figures(plots)}<details><summary>The same in figures</summary>{tables}</details>"


def _figures(charts: Sequence[Chart]) -> str:
    kind = {1: " one", 3: " three"}.get(len(charts), "")
    return f'<div class="plots{kind}">{"".join(map(_figure, charts))}</div>' if charts else ""


def _figure(chart: Chart) -> str:
    legend = ""
    if chart.legend:
        entries = "".join(f"<li>{draw_swatch(chart, one)}<span>{escaped(one.name)}</span></li>" for one in chart.legend)
        legend = f'<ul class="legend">{entries}</ul>'
    return (
        f"<figure><h3>{escaped(chart.title)}</h3>{legend}{draw_svg(chart)}"
        f"<figcaption>{escaped(chart.about)}</figcaption></figure>"
    )


def _costs(runs: Sequence[Results]) -> str:
    about = "Prediction is measured on a few texts in one batch, on the machine that made this report."
    if any(run.fused for run in runs):
        about += (
            " Time and memory of training are those of the network, without the heads that are fitted after it; "
            "weights of a fused run are shares of what the fusion makes of each head."
        )
    return f"<p>{about}</p>{cost_table(runs).html()}"


def _recipes(runs: Sequence[Results]) -> str:
    table = recipe_table(runs)
    same = "The recipes are the same." if len(runs) > 1 else "The recipe was used as it comes."
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
    for title, rows in zip(("Best label right", "Best label wrong"), choose_samples(runs), strict=True):
        if rows:
            blocks = "".join(sample_html(runs, row) for row in rows)
            parts.append(f'<h3>{title}{first}</h3><div class="samples{wide}">{blocks}</div>')
    about = "The five best labels of some texts, ✓ marks the right ones."
    if len(runs) > 1:
        about += " Texts on which the runs differ come first."
    return f"<p>{about}</p>{''.join(parts)}" if parts else ""


def _anchor(title: str) -> str:
    return title.lower().replace(" ", "-")
