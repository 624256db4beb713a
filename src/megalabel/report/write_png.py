"""Write a chart as a PNG file; needs matplotlib."""

from __future__ import annotations

from io import BytesIO
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from megalabel.errors import MissingExtraError
from megalabel.files import make_folder, writing
from megalabel.report._style import LIGHT
from megalabel.report.chart import Chart, Series

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["need_matplotlib", "write_png"]

MARKERS = ("o", "s", "^", "D", "P", "v", "_")
DASHES: tuple[Literal["-", "--", ":"], ...] = ("-", "--", ":")
WIDE = 100  # characters of the legend that fit into one row


def need_matplotlib() -> Any:
    """Return the figure class, or say which extra has it; call it before long work."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("matplotlib", extra="plot", what="writing PNG files") from error
    return Figure


def write_png(chart: Chart, folder: str | PathLike[str]) -> Path:
    """Draw a chart into ``folder``, under its own name, light, at 150 dots per inch."""
    longest = max((len(one.name) for one in chart.legend), default=0)
    columns = max(1, min(len(chart.legend), WIDE // (longest + 6)))
    rows = -(-len(chart.legend) // columns)
    figure = need_matplotlib()(figsize=(6.4, 3.9 + 0.19 * rows), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    _draw(chart, axes)
    axes.set_title(_plain(chart.title), loc="left", fontsize=11)
    axes.set_xlabel(_plain(chart.x_label))
    axes.set_ylabel(_plain(chart.y_label))
    axes.grid(axis="y" if chart.kind == "bar" else "both", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    if chart.legend:
        handles = [_handle(chart, one) for one in chart.legend]
        figure.legend(handles=handles, loc="outside lower center", ncols=columns, frameon=False, fontsize=8)
    content = BytesIO()
    figure.savefig(content, format="png", metadata={"Software": None, "Description": chart.alternative()})
    path = Path(folder) / f"{chart.name}.png"
    make_folder(folder)
    with writing(path) as out:
        out.write(content.getvalue())
    return path


def _draw(chart: Chart, axes: Axes) -> None:
    across, up = chart.x_axis, chart.y_axis
    axes.set_ylim(up.low, up.high)
    axes.set_yticks(up.ticks)
    if chart.kind == "bar":
        axes.set_xticks(range(len(chart.groups)), [_plain(group) for group in chart.groups])
    else:
        axes.set_xlim(across.low, across.high)
        axes.set_xticks(across.ticks)
    width = 0.82 / len(chart.series)
    for place, series in enumerate(chart.series):
        colour, faded = _colour(series)
        if chart.kind == "bar":
            shift = width * (place - (len(chart.series) - 1) / 2)
            axes.bar([x + shift for x in series.x], series.y, width * 0.95, color=colour, alpha=faded)
        elif chart.kind == "line":
            dash = DASHES[series.shape % len(DASHES)]
            axes.plot(series.x, series.y, dash, color=colour, alpha=faded, linewidth=1.6)
        elif series.marks:
            axes.plot(series.x, series.y, "o-", color=colour, alpha=faded, linewidth=1, markersize=3.5, clip_on=False)
            for x, y, mark in zip(series.x, series.y, series.marks, strict=True):
                axes.annotate(_plain(mark), (x, y), (4, 3), textcoords="offset points", fontsize=7)
        else:
            marker = MARKERS[series.shape % len(MARKERS)]
            axes.scatter(series.x, series.y, color=colour, alpha=faded, marker=marker, s=40, zorder=3, clip_on=False)


def _handle(chart: Chart, series: Series) -> Any:
    """Return the sign of a series in the legend."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    colour, faded = _colour(series)
    name = _plain(series.name)
    if chart.kind == "bar":
        return Patch(color=colour, alpha=faded, label=name)
    if chart.kind == "line":
        return Line2D([], [], color=colour, alpha=faded, linestyle=DASHES[series.shape % len(DASHES)], label=name)
    if series.marks:
        return Line2D([], [], color=colour, alpha=faded, marker="o", markersize=3.5, linewidth=1, label=name)
    marker = MARKERS[series.shape % len(MARKERS)]
    return Line2D([], [], color=colour, alpha=faded, marker=marker, linestyle="", label=name)


def _colour(series: Series) -> tuple[str, float]:
    """Return colour and opacity; where the palette starts again, paler."""
    if series.colour < 0:
        return "#5a646e", 1.0
    return LIGHT[series.colour % len(LIGHT)], 0.5 if series.colour >= len(LIGHT) else 1.0


def _plain(text: str) -> str:
    """Keep a dollar sign from starting a formula."""
    return text.replace("$", r"\$")
