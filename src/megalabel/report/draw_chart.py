"""Draw a chart with matplotlib: as SVG inside a page, or as a PNG file."""

from __future__ import annotations

import math
import re
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO, StringIO
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from xml.etree import ElementTree

from megalabel.files import make_folder, writing
from megalabel.report._html import CONTROL, LIGHT, LIGHT_THEME

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from megalabel.report.charts import Chart, Series

__all__ = ["draw_svg", "write_png"]

WIDTH = 480  # points; one point is one CSS pixel where the page shows the chart at this width
LEFT, RIGHT, TOP, BOTTOM = 62, 20, 14, 48  # margins around the axes
TITLE, ENTRY = 24, 17  # height of the title (PNG only) and of one line of the legend
TEXT, VALUE = 12.0, 10.5  # font sizes
DIGIT = 7.0  # width of a digit of a value, with its share of the space between two values
CHARACTER = 7.2  # width of a character, on average, to lay out the legend
DPI = 150  # of PNG files
LABELLED_BARS = 15  # more bars than this have no value on top
MARKED_POINTS = 20  # longer lines have no markers
GROUP_NAME = 14  # characters of a group's name below its bars
MARK_DISTANCE = 26  # points between two marks beside a line; closer ones are left out
MARKERS = ("o", "s", "^", "D", "P", "v", "_")
DASHES: tuple[Literal["-", "--", ":"], ...] = ("-", "--", ":")

# In a page, the colours of the light theme become the CSS variables of the theme in use.
VARIABLES = {colour: f"var(--c{number})" for number, colour in enumerate(LIGHT)}
VARIABLES |= {colour: f"var(--{name})" for name, colour in LIGHT_THEME.items()}
_XLINK = "{http://www.w3.org/1999/xlink}href"

Tooltips = dict[str, list[str]]  # id of an artist -> a text for each of its marks


def draw_svg(chart: Chart, width: int = WIDTH) -> str:
    """Return an ``<svg>`` element for a page with the style of :mod:`megalabel.report._html`.

    It holds text as text, refers to nothing outside itself, has no background, takes its colours from
    the page, and has a title, a description and a tooltip on every mark. The same chart always gives the
    same bytes.
    """
    with _settings(chart):
        figure, tooltips = _draw(chart, width)
        figure.patch.set_visible(False)
        content = StringIO()
        figure.savefig(content, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    return _inline(chart, ElementTree.fromstring(content.getvalue()), tooltips)


def write_png(chart: Chart, folder: str | PathLike[str]) -> Path:
    """Write a chart as ``NAME.png`` into a folder, on white."""
    with _settings(chart):
        figure, _ = _draw(chart, WIDTH, title=True)
        content = BytesIO()
        figure.savefig(content, format="png", dpi=DPI, metadata={"Software": None, "Description": chart.description()})
    path = Path(folder) / f"{chart.name}.png"
    make_folder(folder)
    with writing(path) as out:
        out.write(content.getvalue())
    return path


@contextmanager
def _settings(chart: Chart) -> Iterator[None]:
    """Use matplotlib's defaults and ours, whatever the user's matplotlibrc says."""
    import matplotlib

    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*(Glyph|glyph|font)")  # names in any script; the page has fonts
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(
            {
                "font.family": "DejaVu Sans",
                "font.size": TEXT,
                "text.parse_math": False,
                "svg.fonttype": "none",
                "svg.hashsalt": chart.name,  # ids of markers differ between the charts of a page
            }
        )
        yield


def _draw(chart: Chart, width: int, *, title: bool = False) -> tuple[Figure, Tooltips]:
    """Draw axes, marks and legend; margins are fixed, which is much faster than a layout engine."""
    from matplotlib.figure import Figure

    names = [textwrap.fill(_clean(entry.name), int(width / CHARACTER) - 5) for entry in chart.legend]
    columns = _legend_columns(names, width)
    rows = -(-len(names) // columns) * max((name.count("\n") + 1 for name in names), default=0)
    head = TOP + (TITLE if title else 0) + ENTRY * rows
    height = head + round(0.5 * width) + BOTTOM
    figure = Figure(figsize=(width / 72, height / 72), dpi=72)
    box = (LEFT / width, BOTTOM / height, (width - LEFT - RIGHT) / width, (height - head - BOTTOM) / height)
    axes = figure.add_axes(box)
    axes.patch.set_visible(False)
    axes.set_axisbelow(True)
    axes.grid(axis="y" if chart.kind == "bar" else "both", color=LIGHT_THEME["rule"], linewidth=1)
    axes.tick_params(left=False, bottom=False, colors=LIGHT_THEME["soft"], pad=6)
    axes.spines[["top", "left", "right"]].set_visible(False)
    axes.spines["bottom"].set_color(LIGHT_THEME["soft"])
    axes.set_xlabel(chart.x_label, labelpad=7, color=LIGHT_THEME["soft"])
    axes.set_ylabel(chart.y_label, color=LIGHT_THEME["soft"])
    axes.yaxis.set_label_coords(16 / width, box[1] + box[3] / 2, transform=figure.transFigure)
    tooltips = _MARKS[chart.kind](chart, axes)
    if title:
        figure.text(8 / width, 1 - 8 / height, _clean(chart.title), va="top", weight="bold", color=LIGHT_THEME["text"])
    if names:
        figure.legend(
            handles=[_legend_handle(chart, entry) for entry in chart.legend],
            labels=names,
            loc="upper left",
            bbox_to_anchor=(2 / width, 1 - (TITLE if title else 0) / height),
            ncols=columns,
            labelcolor=LIGHT_THEME["text"],
            frameon=False,
            borderaxespad=0.2,
            borderpad=0,
            handlelength=1.4,
            handletextpad=0.5,
            columnspacing=1.2,
            labelspacing=0.35,
        )
    return figure, tooltips


def _line_marks(chart: Chart, axes: Axes) -> Tooltips:
    _set_axes(chart, axes)
    tooltips = {}
    for number, series in enumerate(chart.series):
        marked = len(series.x) <= MARKED_POINTS
        key = f"line-{number}"
        axes.plot(
            series.x, series.y, linestyle=DASHES[series.shape % len(DASHES)], linewidth=2, marker="o" if marked else "",
            markersize=6, markeredgewidth=0, gid=key, clip_on=False, **_colour(series),
        )  # fmt: skip
        if marked:
            points = [(x, y) for x, y in zip(series.x, series.y, strict=True) if not math.isnan(y)]  # NaN is a gap
            tooltips[key] = [f"{series.name}: {y:.4g} at {x:,.4g} {chart.x_label}" for x, y in points]
    return tooltips


def _bar_marks(chart: Chart, axes: Axes) -> Tooltips:
    count = len(chart.groups)
    ticks = axis_ticks([y for series in chart.series for y in series.y], zero=True)
    axes.set_ylim(ticks[0], ticks[-1])
    axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set_xlim(-0.5, count - 0.5)
    axes.set_xticks(range(count), [_clean(group[:GROUP_NAME]) for group in chart.groups])
    slot = axes.get_window_extent().width / count
    width = min(0.82 / len(chart.series), 46 / slot)
    gap = min(1.0, width * slot / 8) / slot
    longest = [f"{y:.1f}" for series in chart.series for y in series.y]
    tooltips = {}
    for number, series in enumerate(chart.series):
        shift = width * (number - (len(chart.series) - 1) / 2)
        bars = axes.bar([x + shift for x in series.x], series.y, width - 2 * gap, clip_on=False, **_colour(series))
        for bar, x, y in zip(bars, series.x, series.y, strict=True):
            key = f"bar-{number}-{x:g}"
            bar.set_gid(key)
            tooltips[key] = [f"{series.name}, {chart.groups[int(x)]}: {y:.2f}"]
        values = [f"{y:.1f}" for y in series.y]
        if len(chart.series) * count <= LABELLED_BARS and width * slot >= VALUE:
            fits = width * slot >= max(map(len, longest)) * DIGIT
            axes.bar_label(
                bars, values, fontsize=VALUE, padding=2, rotation=0 if fits else 90, color=LIGHT_THEME["text"]
            )
    return tooltips


def _point_marks(chart: Chart, axes: Axes) -> Tooltips:
    _set_axes(chart, axes)
    tooltips = {}
    for number, series in enumerate(chart.series):
        key = f"point-{number}"
        if series.marks:
            axes.plot(
                series.x, series.y, "o-", linewidth=1.2, markersize=5, markeredgewidth=0, gid=key, clip_on=False,
                **_colour(series),
            )  # fmt: skip
            tooltips[key] = [f"{series.name}: {mark}" for mark in series.marks]
            _write_marks(series, axes)
            continue
        marker = MARKERS[series.shape % len(MARKERS)]
        axes.plot(
            series.x, series.y, marker, gid=key, clip_on=False, zorder=3, **_marker_style(marker), **_colour(series)
        )
        x, y = series.x[0], series.y[0]
        tooltips[key] = [f"{series.name}: {chart.x_label} {x:.2f}, {chart.y_label} {y:.2f}"]
    return tooltips


_MARKS = {"line": _line_marks, "bar": _bar_marks, "point": _point_marks}


def _write_marks(series: Series, axes: Axes) -> None:
    """Write the mark of each point beside it, unless it would overlap the previous one."""
    last = None
    points = axes.transData.transform(list(zip(series.x, series.y, strict=True)))
    for point, x, y, mark in zip(points, series.x, series.y, series.marks, strict=True):
        if last is None or abs(point - last).sum() > MARK_DISTANCE:
            axes.annotate(
                _clean(mark), (x, y), (6, 4), textcoords="offset points", fontsize=VALUE, color=LIGHT_THEME["text"],
                annotation_clip=False,
            )  # fmt: skip
            last = point


def _set_axes(chart: Chart, axes: Axes) -> None:
    """Set limits and ticks of both axes; lines start at 0, where training began."""
    columns, rows = ([x for series in chart.series for x in series.x], [y for series in chart.series for y in series.y])
    if chart.span and chart.kind == "line":
        rows += _around(rows, max(chart.span, max(rows) - min(rows)))
    elif chart.span:
        span = max(chart.span, *(max(values) - min(values) for values in (columns, rows)))
        columns, rows = ([*values, *_around(values, span)] for values in (columns, rows))
    across = axis_ticks(columns, zero=chart.kind == "line")
    up = axis_ticks([y for y in rows if not math.isnan(y)])
    axes.set_xlim(across[0], across[-1])
    axes.set_ylim(up[0], up[-1])
    axes.set_xticks(across, [f"{tick:,g}" for tick in across])
    axes.set_yticks(up, [f"{tick:g}" for tick in up])


def _around(values: Sequence[float], span: float) -> tuple[float, float]:
    """Return the ends of an interval of this length around percentages, within 0 to 100 as far as it can be."""
    low = max(0.0, min((min(values) + max(values) - span) / 2, 100.0 - span))
    return low, low + span


def axis_ticks(values: Sequence[float], *, zero: bool = False) -> list[float]:
    """Return round numbers from at most the smallest to at least the largest value, including zero if ``zero``.

    >>> axis_ticks([3.0, 17.2])
    [0.0, 5.0, 10.0, 15.0, 20.0]
    """
    from matplotlib.ticker import MaxNLocator

    low, high = min(values), max(values)
    low = min(0.0, low) if zero else low
    if high - low < 1e-9 * max(1.0, abs(high)):
        low, high = low - 0.5, high + 0.5
    ticks = MaxNLocator(5, steps=[1, 2, 5, 10], min_n_ticks=1).tick_values(low, high)
    return [round(float(tick), 10) for tick in ticks]


def _legend_columns(names: Sequence[str], width: int) -> int:
    """Return how many columns of a legend fit into the width; matplotlib fills one column after the other.

    >>> _legend_columns(["all", "dual", "classifier"], 480), _legend_columns(["a long name of a run"] * 4, 480)
    (3, 2)
    """
    lengths = [max(map(len, name.split("\n"))) + 5 for name in names]  # with the handle and the space between columns
    for columns in range(len(names), 1, -1):
        size, larger = divmod(len(names), columns)
        ends = [size * (number + 1) + min(number + 1, larger) for number in range(columns)]
        widest = [max(lengths[start:end]) for start, end in zip([0, *ends], ends, strict=False)]
        if sum(widest) * CHARACTER <= width:
            return columns
    return 1


def _legend_handle(chart: Chart, series: Series) -> Any:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    colour = _colour(series)
    if chart.kind == "bar":
        return Patch(**colour)
    if chart.kind == "line":
        return Line2D([], [], linewidth=2, linestyle=DASHES[series.shape % len(DASHES)], **colour)
    if series.marks:
        return Line2D([], [], linewidth=1.2, marker="o", markersize=5, markeredgewidth=0, **colour)
    marker = MARKERS[series.shape % len(MARKERS)]
    return Line2D([], [], linestyle="", marker=marker, **_marker_style(marker), **colour)


def _marker_style(marker: str) -> dict[str, Any]:
    """Return size and outline; a marker that is a mere line has no area to outline."""
    return {"markersize": 10, "markeredgewidth": 3} if marker == "_" else {
        "markersize": 10, "markeredgewidth": 1, "markeredgecolor": LIGHT_THEME["ground"],
    }  # fmt: skip


def _colour(series: Series) -> dict[str, Any]:
    """Return colour and opacity; where the palette starts again, paler."""
    if series.colour < 0:
        return {"color": LIGHT_THEME["soft"]}
    return {"color": LIGHT[series.colour % len(LIGHT)], "alpha": 0.5 if series.colour >= len(LIGHT) else None}


def _clean(text: str) -> str:
    """Replace characters that neither XML nor a font can hold."""
    return CONTROL.sub("\ufffd", text)


def _inline(chart: Chart, root: ElementTree.Element, tooltips: Tooltips) -> str:
    """Return matplotlib's SVG made fit for a page: colours by CSS variables, unique ids, tooltips, a description."""
    for key, texts in tooltips.items():
        group = next(element for element in root.iter() if element.get("id") == key)
        marks = [element for element in group.iter() if element.tag.endswith("}use")] or list(group)
        for mark, text in zip(marks, texts, strict=True):
            _child(mark, "title", text)
    used = {element.get(_XLINK, "")[1:] for element in root.iter()}
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag.endswith("}metadata") or any(part.tag.endswith(("}style", "}clipPath")) for part in child):
                parent.remove(child)  # matplotlib's style would reach the whole page; no mark lies outside the axes
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
        element.text, element.tail = (text if text and text.strip() else None for text in (element.text, None))
        element.attrib = _attributes(element, used)
    key = f"chart-{chart.name}"
    _child(root, "desc", chart.description(), id=f"{key}-description")
    _child(root, "title", chart.title, id=f"{key}-title")
    root.attrib = {
        "viewBox": root.attrib["viewBox"],
        "role": "img",
        "aria-labelledby": f"{key}-title",
        "aria-describedby": f"{key}-description",
    }
    return ElementTree.tostring(root, encoding="unicode")


def _child(parent: ElementTree.Element, tag: str, text: str, **attributes: str) -> None:
    """Insert a first child that holds text."""
    child = ElementTree.Element(tag, attributes)
    child.text = _clean(text)
    parent.insert(0, child)


def _attributes(element: ElementTree.Element, used: set[str]) -> dict[str, str]:
    """Return the attributes of an element as a page wants them."""
    attributes = {}
    for name, value in element.attrib.items():
        if name == _XLINK:
            attributes["href"] = value
        elif name == "style":
            declarations = dict(part.split(": ", 1) for part in value.split("; "))
            font = next((text for key, text in declarations.items() if key in ("font", "font-size")), None)
            if font:
                attributes["font-size"] = re.findall(r"([\d.]+)px", font)[0]
            attributes["style"] = ";".join(
                f"{key}:{VARIABLES.get(text, text)}" for key, text in declarations.items() if not key.startswith("font")
            )
        elif name in ("d", "x", "y", "transform"):
            short = re.sub(r"-?\d+\.\d+", lambda match: f"{float(match[0]):.2f}".rstrip("0").rstrip("."), value)
            attributes[name] = " ".join(short.split())
        elif name != "clip-path" and (name != "id" or value in used):
            attributes[name] = value
    return attributes
