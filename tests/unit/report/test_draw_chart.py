import re
from itertools import pairwise
from xml.etree import ElementTree

import matplotlib
import pytest
from hypothesis import given
from hypothesis import strategies as st

from megalabel.report.charts import Chart, Series, all_charts
from megalabel.report.draw_chart import axis_ticks, draw_svg, write_png

NASTY = "<b>&$x^2$\x00\ud800 " + "عربي 漢字 " * 3
numbers = st.floats(-1e6, 1e6, allow_nan=False).map(lambda value: round(value, 4))


def chart(kind, name="chart", count=2, points=3, **more):
    groups = tuple(f"group {number}" for number in range(points)) if kind == "bar" else ()
    x = tuple(range(points)) if kind != "point" else (1.0,)
    y = tuple(float(number + 1) for number in range(len(x)))
    series = tuple(Series(f"{NASTY}{number}", x, y, number, number) for number in range(count))
    return Chart(kind, name, f"Title {NASTY}", "x", "y", series, "", groups, **more)


@given(st.lists(numbers, min_size=1, max_size=20), st.booleans())
def test_ticks_are_round_and_enclose_every_value(values, zero):
    ticks = axis_ticks(values, zero=zero)
    assert ticks[0] - 1e-6 <= min(values) and max(values) <= ticks[-1] + 1e-6
    assert 2 <= len(ticks) <= 8
    assert ticks == sorted(set(ticks))
    assert not zero or ticks[0] <= 0
    steps = [f"{second - first:.3g}" for first, second in pairwise(ticks)]
    assert len(set(steps)) == 1 and steps[0].replace(".", "").strip("0")[0] in "125"


@pytest.mark.parametrize("kind", ["line", "bar", "point"])
def test_svg_is_self_contained_and_takes_its_colours_from_the_page(kind):
    svg = draw_svg(chart(kind, count=10))
    root = ElementTree.fromstring(svg)
    assert root.tag == "svg" and root.get("role") == "img"
    ids = {element.get("id") for element in root.iter()} - {None}
    assert {root.get("aria-labelledby"), root.get("aria-describedby")} <= ids
    assert all(element.get("href", "#")[1:] in {"", *ids} for element in root.iter())
    assert not re.search(r"#[0-9a-f]{6}", svg), "a colour that ignores the theme"
    assert "url(" not in svg and "<style" not in svg and "http" not in svg and "DejaVu" not in svg
    assert "var(--c7)" in svg and "opacity:0.5" in svg  # the ninth series is paler


@pytest.mark.parametrize("kind", ["line", "bar", "point"])
def test_text_is_text_and_every_mark_has_a_tooltip(kind):
    drawn = chart(kind)
    root = ElementTree.fromstring(draw_svg(drawn))
    texts = [element.text for element in root.iter("text")]
    assert {"x", "y"} <= set(texts)
    legend = "".join(text for text in texts).replace("\n", "")
    assert "<b>&$x^2$\ufffd\ufffd" in legend
    title, description, *tooltips = (element.text for element in root.iter() if element.tag in ("title", "desc"))
    assert title.startswith("Title <b>") and description.startswith("Title <b>")
    assert len(tooltips) == sum(len(series.x) for series in drawn.series)


def test_long_lines_have_no_markers():
    svg = draw_svg(chart("line", points=200))
    assert "<use" not in svg and svg.count("<path") > 2


def test_bars_start_at_zero_and_show_values_if_they_are_few():
    few, many = (ElementTree.fromstring(draw_svg(chart("bar", count=count))) for count in (2, 8))
    values = [[element.text for element in root.iter("text")].count("3.0") for root in (few, many)]
    assert values == [2, 0]
    assert "0" in [element.text for element in few.iter("text")]


def test_values_of_narrow_bars_are_upright_or_left_out():
    """15 bars with values: in one group each value has room; in five groups of three they would touch."""

    def rotations(groups, count):
        names = tuple(f"group {number}" for number in range(groups))
        rows = tuple(Series(str(n), tuple(range(groups)), (26.7,) * groups, n) for n in range(count))
        root = ElementTree.fromstring(draw_svg(Chart("bar", "bars", "t", "x", "y", rows, "", names)))
        texts = [element for element in root.iter("text") if element.text == "26.7"]
        return {(element.get("transform") or "").count("rotate(-90") for element in texts}, len(texts)

    assert rotations(1, 5) == ({0}, 5)
    assert rotations(2, 7) == ({1}, 14)
    assert rotations(5, 3) == ({1}, 15)
    assert rotations(1, 15) == ({1}, 15)


@pytest.mark.parametrize(
    ("x", "y"), [((26.6, 26.7), (99.9, 100.0)), ((0.1, 0.0), (50.0, 50.0)), ((3.0, 9.0), (1.0, 2.0))]
)
def test_axes_with_a_span_show_small_differences_small(x, y):
    row = Series("all", x, y, 0, marks=("0", "1"))
    root = ElementTree.fromstring(draw_svg(Chart("point", "tail", "t", "across", "up", (row,), "", span=5.0)))
    texts = [element.text for element in root.iter("text")]
    first, second = texts.index("across"), texts.index("up")  # each axis has its ticks before its name
    for shown, values in ((texts[:first], x), (texts[first + 1 : second], y)):
        ticks = [float(text) for text in shown]
        assert ticks[-1] - ticks[0] >= 5 and 0 <= ticks[0] <= min(values) and max(values) <= ticks[-1]


@pytest.mark.parametrize("y", [(100.0, 100.0), (61.2, 61.4), (10.0, 70.0)])
def test_percentages_over_time_stay_within_100_and_are_not_magnified(y):
    row = Series("P@1", (1.0, 2.0), y, 0)
    root = ElementTree.fromstring(draw_svg(Chart("line", "validation", "t", "across", "up", (row,), "", span=5.0)))
    texts = [element.text for element in root.iter("text")]
    first, second = texts.index("across"), texts.index("up")
    ticks = [float(text) for text in texts[first + 1 : second]]
    assert ticks[-1] - ticks[0] >= 5 and 0 <= ticks[0] <= min(y) and max(y) <= ticks[-1] <= 100
    assert float(texts[:first][-1]) <= 2  # the axis of time has no such span


def test_a_line_with_a_gap_has_a_mark_for_every_point():
    row = Series("loss", (1.0, 2.0, 3.0, 4.0), (3.0, float("nan"), 2.0, 1.0), 0)
    root = ElementTree.fromstring(draw_svg(Chart("line", "loss", "t", "x", "y", (row,), "")))
    assert [element.text for element in root.iter("title")][1:] == [
        "loss: 3 at 1 x", "loss: 2 at 3 x", "loss: 1 at 4 x",
    ]  # fmt: skip
    assert "nan" not in ElementTree.tostring(root, encoding="unicode").lower()


def test_marks_beside_joined_points_do_not_overlap():
    row = Series("all", (0.0, 0.001, 10.0), (0.0, 0.001, 10.0), 0, marks=("first", "hidden", "last"))
    root = ElementTree.fromstring(draw_svg(Chart("point", "tail", "t", "x", "y", (row,), "")))
    texts = [element.text for element in root.iter("text")]
    assert "first" in texts and "last" in texts and "hidden" not in texts
    assert [element.text for element in root.iter("title")][1:] == ["all: first", "all: hidden", "all: last"]


def test_a_legend_may_explain_shapes_and_wraps_long_names():
    keys = (Series("a long name " * 20, (), (), 0), Series("shape", (), (), -1, 6))
    short, long = draw_svg(chart("point")), draw_svg(chart("point", keys=keys))
    heights = [float(ElementTree.fromstring(svg).get("viewBox").split()[3]) for svg in (short, long)]
    assert heights[1] > heights[0]
    assert "var(--soft)" in long


def test_ids_of_two_charts_differ():
    ids = [set(re.findall(r' id="([^"]+)"', draw_svg(chart("line", name)))) for name in ("one", "two")]
    assert ids[0] and not ids[0] & ids[1]


def test_every_chart_of_a_report(results, fused_results, tmp_path):
    for drawn in all_charts([*results, fused_results]):
        ElementTree.fromstring(draw_svg(drawn))
        content = write_png(drawn, tmp_path / "plots").read_bytes()
        assert content.startswith(b"\x89PNG") and len(content) > 5000


def test_same_bytes_whatever_the_users_settings():
    expected = draw_svg(chart("line"))
    with matplotlib.rc_context({"font.size": 30, "lines.linewidth": 9, "svg.fonttype": "path", "svg.hashsalt": None}):
        assert draw_svg(chart("line")) == expected
        assert matplotlib.rcParams["font.size"] == 30
