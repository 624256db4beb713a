"""Draw a chart as SVG, by hand: no package needed, colours from the page, text that can be read aloud and copied."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from megalabel.report.chart import Axis, Chart, Series

__all__ = ["draw_svg", "draw_swatch"]

WIDTH, HEIGHT = 480, 300
LEFT, RIGHT, TOP, BOTTOM = 62, 470, 14, 252
COLOURS = 8  # classes c0 to c7 of the page
DASHES = ("", "6 3", "2 3")
VALUES = 15  # bars, at most, that have their value on top
NAME = 14  # characters of a group below its bars
APART = 26  # of marks beside points


def draw_svg(chart: Chart) -> str:
    """Return an ``<svg>`` element that takes its colours from the classes of the page around it."""
    parts = [*_frame(chart), *_MARKS[chart.kind](chart)]
    label = escape(chart.alternative())
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}" xmlns="http://www.w3.org/2000/svg">'
        + "".join(parts)
        + "</svg>"
    )


def draw_swatch(chart: Chart, series: Series) -> str:
    """Return the small sign that stands for a series in a legend."""
    colour = _colour(series)
    if chart.kind == "line":
        sign = f'<path d="M0 6H20" class="line {colour}" stroke-dasharray="{_dashes(series)}"/>'
    elif chart.kind == "bar":
        sign = f'<rect x="3" y="1" width="14" height="10" class="fill {colour}"/>'
    elif series.marks:
        sign = f'<path d="M0 6H20" class="thin {colour}"/><circle cx="10" cy="6" r="2.5" class="fill {colour}"/>'
    else:
        sign = f'<path d="{_shape(series.shape, 10, 6)}" class="fill {colour}"/>'
    return f'<svg viewBox="0 0 20 12" width="20" height="12" aria-hidden="true">{sign}</svg>'


def _frame(chart: Chart) -> Iterator[str]:
    """Yield grid, ticks and the names of the axes."""
    axis = chart.y_axis
    for tick in axis.ticks:
        y = _y(axis, tick)
        yield f'<path d="M{LEFT} {y:.1f}H{RIGHT}" class="grid"/>'
        yield f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{tick:g}</text>'
    if chart.kind == "bar":
        slot = (RIGHT - LEFT) / len(chart.groups)
        for number, group in enumerate(chart.groups):
            x = LEFT + slot * (number + 0.5)
            yield f'<text x="{x:.1f}" y="{BOTTOM + 17}" text-anchor="middle">{escape(group[:NAME])}</text>'
    else:
        across = chart.x_axis
        for tick in across.ticks:
            x = _x(across, tick)
            yield f'<path d="M{x:.1f} {TOP}V{BOTTOM}" class="grid"/>'
            place = f'x="{x:.1f}" text-anchor="middle"' if x < RIGHT - 1 else f'x="{WIDTH - 2}" text-anchor="end"'
            yield f'<text {place} y="{BOTTOM + 17}">{tick:,g}</text>'
    yield f'<path d="M{LEFT} {BOTTOM}H{RIGHT}" class="axis"/>'
    yield f'<text x="{(LEFT + RIGHT) / 2}" y="{HEIGHT - 10}" text-anchor="middle" class="name">{chart.x_label}</text>'
    middle = (TOP + BOTTOM) / 2
    yield (
        f'<text transform="translate(13 {middle}) rotate(-90)" text-anchor="middle" class="name">{chart.y_label}</text>'
    )


def _line_marks(chart: Chart) -> Iterator[str]:
    across, up = chart.x_axis, chart.y_axis
    for series in chart.series:
        colour = _colour(series)
        points = [(_x(across, x), _y(up, y)) for x, y in zip(series.x, series.y, strict=True)]
        path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        yield f'<path d="{path}" class="line {colour}" stroke-dasharray="{_dashes(series)}"/>'
        if len(points) <= 20:
            for (x, y), place, value in zip(points, series.x, series.y, strict=True):
                said = escape(f"{series.name}: {value:.4g} at {place:,.4g} {chart.x_label}")
                yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" class="fill {colour}"><title>{said}</title></circle>'


def _bar_marks(chart: Chart) -> Iterator[str]:
    up = chart.y_axis
    slot = (RIGHT - LEFT) / len(chart.groups)
    room = slot * 0.82
    width = min(room / len(chart.series), 46)
    base = _y(up, 0)
    for place, series in enumerate(chart.series):
        for x, y in zip(series.x, series.y, strict=True):
            left = LEFT + slot * (x + 0.5) + width * (place - len(chart.series) / 2)
            top = _y(up, y)
            said = escape(f"{series.name}, {chart.groups[int(x)]}: {y:.2f}")
            gap = min(1.0, width / 8)
            yield (
                f'<rect x="{left + gap:.1f}" y="{top:.1f}" width="{width - 2 * gap:.1f}" height="{base - top:.1f}" '
                f'class="fill {_colour(series)}"><title>{said}</title></rect>'
            )
            if len(chart.series) * len(chart.groups) <= VALUES:
                middle = left + width / 2
                yield f'<text x="{middle:.1f}" y="{top - 4:.1f}" text-anchor="middle" class="value">{y:.1f}</text>'


def _point_marks(chart: Chart) -> Iterator[str]:
    across, up = chart.x_axis, chart.y_axis
    for series in sorted(chart.series, key=lambda one: not one.marks):  # single points on top of what joins points
        if series.marks:
            yield from _row_marks(chart, series)
            continue
        x, y = _x(across, series.x[0]), _y(up, series.y[0])
        said = escape(f"{series.name}: {chart.x_label} {series.x[0]:.2f}, {chart.y_label} {series.y[0]:.2f}")
        shape = _shape(series.shape, x, y)
        yield f'<path d="{shape}" class="fill point {_colour(series)}"><title>{said}</title></path>'


def _row_marks(chart: Chart, series: Series) -> Iterator[str]:
    """Yield points in a row, joined, each with its mark; a mark that would stand on another is left out."""
    points = [(_x(chart.x_axis, x), _y(chart.y_axis, y)) for x, y in zip(series.x, series.y, strict=True)]
    colour = _colour(series)
    yield f'<path d="M{"L".join(f"{x:.1f} {y:.1f}" for x, y in points)}" class="thin {colour}"/>'
    last = None
    for (x, y), mark in zip(points, series.marks, strict=True):
        said = escape(f"{series.name}: {mark}")
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" class="fill {colour}"><title>{said}</title></circle>'
        if last is None or abs(x - last[0]) + abs(y - last[1]) > APART:
            yield f'<text x="{x + 7:.1f}" y="{y - 5:.1f}" class="value">{escape(mark)}</text>'
            last = x, y


_MARKS = {"line": _line_marks, "bar": _bar_marks, "point": _point_marks}


def _shape(number: int, x: float, y: float) -> str:
    """Return the outline of a point: circle, square, triangle, diamond, cross, triangle upside down, bar, and again."""
    r = 5.5
    outlines = (
        f"M{x - r:.1f} {y:.1f}a{r} {r} 0 1 0 {2 * r} 0a{r} {r} 0 1 0 {-2 * r} 0z",
        f"M{x - 4.8:.1f} {y - 4.8:.1f}h9.6v9.6h-9.6z",
        f"M{x:.1f} {y - 6:.1f}l6 10.5h-12z",
        f"M{x:.1f} {y - 6.5:.1f}l6.5 6.5l-6.5 6.5l-6.5 -6.5z",
        f"M{x - 2:.1f} {y - 6:.1f}h4v4h4v4h-4v4h-4v-4h-4v-4h4z",
        f"M{x:.1f} {y + 6:.1f}l6 -10.5h-12z",
        f"M{x - 6.5:.1f} {y - 2:.1f}h13v4h-13z",
    )
    return outlines[number % len(outlines)]


def _colour(series: Series) -> str:
    """Return the classes of a colour; where the palette starts again, paler."""
    if series.colour < 0:
        return "none"
    return f"c{series.colour % COLOURS}" + (" again" if series.colour >= COLOURS else "")


def _dashes(series: Series) -> str:
    return DASHES[series.shape % len(DASHES)]


def _x(axis: Axis, value: float) -> float:
    return LEFT + axis.share(value) * (RIGHT - LEFT)


def _y(axis: Axis, value: float) -> float:
    return BOTTOM - axis.share(value) * (BOTTOM - TOP)
