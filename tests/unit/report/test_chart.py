from hypothesis import given
from hypothesis import strategies as st

from megalabel.report.chart import Axis, Chart, Series

numbers = st.floats(-1e6, 1e6, allow_nan=False).map(lambda value: round(value, 4))


@given(st.lists(numbers, min_size=1, max_size=20), st.booleans())
def test_an_axis_holds_every_value_between_round_ticks(values, zero):
    axis = Axis.around(values, zero=zero)
    assert all(axis.low - 1e-6 <= value <= axis.high + 1e-6 for value in values)
    assert 2 <= len(axis.ticks) <= 8
    assert list(axis.ticks) == sorted(set(axis.ticks))
    assert (axis.ticks[0], axis.ticks[-1]) == (axis.low, axis.high)
    assert not zero or axis.low <= 0
    assert all(-1e-6 <= axis.share(value) <= 1 + 1e-6 for value in values)


def test_bars_stand_on_zero():
    bars = Chart("bar", "b", "Bars", "x", "y", (Series("a", (0, 1), (40.0, 50.0), 0),), "", ("head", "tail"))
    assert bars.y_axis.low == 0
    assert bars.alternative() == "Bars. a: head 40.00, tail 50.00."


def test_words_for_lines_and_points():
    line = Chart("line", "l", "Loss", "steps", "loss", (Series("select", (1, 2, 3), (3.0, 2.0, 0.5), 0),), "")
    assert line.alternative() == "Loss. select: from 3 to 0.5."
    point = Chart("point", "p", "P and PSP", "P@5", "PSP@5", (Series("all", (30.0,), (25.5,), 0),), "")
    assert point.alternative() == "P and PSP. all: P@5 30.00, PSP@5 25.50."
    row = Series("all", (30.0, 28.0, 26.0), (25.0, 26.0, 27.0), 0, marks=("0", "0.5", "1"))
    points = Chart("point", "p", "P and PSP", "P@5", "PSP@5", (row,), "")
    assert points.alternative() == "P and PSP. all: P@5 30.00, PSP@5 25.00 to P@5 26.00, PSP@5 27.00."
