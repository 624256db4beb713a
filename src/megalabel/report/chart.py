"""A chart as data: what is drawn, whatever draws it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

__all__ = ["Axis", "Chart", "Series"]


@dataclass(frozen=True)
class Series:
    """One line, one bar in every group, one point, or points in a row."""

    name: str
    x: tuple[float, ...]  # of bars: the number of the group
    y: tuple[float, ...]
    colour: int  # number in the palette; -1 is none, for an entry of a legend that is about shapes
    shape: int = 0  # of a point, or the dashes of a line
    marks: tuple[str, ...] = ()  # of points in a row, which a line joins: what stands beside each


@dataclass(frozen=True)
class Axis:
    """The range of an axis and where its ticks are."""

    low: float
    high: float
    ticks: tuple[float, ...]

    @classmethod
    def around(cls, values: list[float], *, zero: bool = False, wanted: int = 5) -> Axis:
        """Return an axis over round numbers that holds all values, and zero if asked.

        >>> Axis.around([3.0, 17.2]).ticks
        (0.0, 5.0, 10.0, 15.0, 20.0)
        """
        low, high = min(values), max(values)
        low = min(0.0, low) if zero else low
        if high - low < 1e-9 * max(1.0, abs(high)):
            low, high = low - 0.5, high + 0.5
        rough = (high - low) / wanted
        scale = 10.0 ** math.floor(math.log10(rough))
        step = scale * next(size for size in (1, 2, 5, 10) if size * scale >= rough * 0.999)
        first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
        ticks = tuple(round(number * step, 10) for number in range(first, last + 1))
        return cls(ticks[0], ticks[-1], ticks)

    def share(self, value: float) -> float:
        """Return where a value lies between the ends, 0 to 1."""
        return (value - self.low) / (self.high - self.low)


@dataclass(frozen=True)
class Chart:
    """Lines, grouped bars or points, with all the words that go with them."""

    kind: Literal["line", "bar", "point"]
    name: str  # of its file
    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    about: str  # how to read it, one or two sentences
    groups: tuple[str, ...] = ()  # of bars
    keys: tuple[Series, ...] = ()  # entries of the legend where these are not the series

    @property
    def x_axis(self) -> Axis:
        """The axis below; lines start at 0, where training began."""
        return Axis.around([x for one in self.series for x in one.x], zero=self.kind == "line")

    @property
    def y_axis(self) -> Axis:
        """The axis on the left; bars stand on 0."""
        return Axis.around([y for one in self.series for y in one.y], zero=self.kind == "bar")

    @property
    def legend(self) -> tuple[Series, ...]:
        """What the legend explains; nothing where there is only one series."""
        return self.keys or (self.series if len(self.series) > 1 else ())

    def alternative(self) -> str:
        """Return the chart in words, for those who cannot see it."""
        parts = []
        for one in self.series:
            if self.kind == "bar":
                said = ", ".join(f"{group} {y:.2f}" for group, y in zip(self.groups, one.y, strict=True))
            elif self.kind == "line":
                said = f"from {one.y[0]:.4g} to {one.y[-1]:.4g}"
            else:
                places = [f"{self.x_label} {x:.2f}, {self.y_label} {y:.2f}" for x, y in zip(one.x, one.y, strict=True)]
                said = " to ".join(dict.fromkeys((places[0], places[-1])))
            parts.append(f"{one.name}: {said}")
        return f"{self.title}. {'; '.join(parts)}."
