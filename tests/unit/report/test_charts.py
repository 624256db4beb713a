from dataclasses import replace

import pytest

from megalabel.report.charts import (
    Chart,
    Series,
    all_charts,
    calibration_chart,
    frequency_charts,
    learning_charts,
    tail_chart,
    threshold_chart,
    trade_off_chart,
)


def without(record, *names):
    return {name: value for name, value in record.items() if name not in names}


def test_the_bars_of_one_colour_add_up_to_precision(results):
    for chart in frequency_charts(results):
        for run, series in zip(results, chart.series, strict=True):
            assert sum(series.y) == pytest.approx(run.best["metrics"]["P@5"])
            assert series.name == run.name


def test_one_run_has_a_bar_for_each_head(results):
    for chart in frequency_charts(results[:1]):
        assert [series.name for series in chart.series] == ["all", "dual", "classifier"]
        assert len(chart.groups) == len(chart.series[0].y)


def test_trade_off_has_a_point_for_each_run_and_head(results):
    chart = trade_off_chart(results)
    assert [series.name for series in chart.series[:3]] == ["<first>, all", "<first>, dual", "<first>, classifier"]
    assert len(chart.series) == 6
    first = chart.series[0]
    metrics = results[0].best["metrics"]
    assert (first.x[0], first.y[0]) == (metrics["P@5"], metrics["PSP@5"])
    assert len({(series.colour, series.shape) for series in chart.series}) == 6


def test_learning_curves(results):
    loss, validation = learning_charts(results[1:])
    assert [series.name for series in loss.series] == ["select", "refit"]
    assert [series.name for series in validation.series] == ["P@1", "PSP@5"]
    assert loss.x_label == "seconds of training"
    assert [chart.name for chart in learning_charts(results)] == ["loss", "validation-P-at-1", "validation-PSP-at-5"]
    assert len(validation.series[0].x) == 2  # epochs


@pytest.mark.parametrize(("seconds", "label", "last"), [(1.0, "seconds of training", 12.0), (60.0, "minutes", 12.0)])
def test_time_if_every_run_has_it(results, seconds, label, last):
    log = [{**record, "seconds": seconds * record["step"]} for record in results[0].log]
    timed = replace(results[0], log=log)
    untimed = replace(results[1], log=[without(record, "seconds") for record in results[1].log])
    loss = learning_charts([timed])[0]
    assert loss.x_label.startswith(label)
    assert loss.series[0].x[-1] == pytest.approx(last)
    assert learning_charts([timed, untimed])[0].x_label == "steps"


def test_calibration_has_predicted_beside_observed(results, fused_results):
    assert calibration_chart(results) is None
    chart = calibration_chart([fused_results])
    bins = [part for part in fused_results.calibration["bins"] if part["labels"]]
    assert [series.name for series in chart.series] == ["predicted", "observed"]
    assert chart.series[1].y == tuple(part["observed"] for part in bins)
    assert chart.groups[0] == f"{(bins[0]['low'] + bins[0]['high']) / 2:g}"
    assert f"{fused_results.calibration['error']:.1f} points" in chart.about
    many = calibration_chart([results[0], fused_results])
    assert [series.name for series in many.series] == ["as predicted", "<fused>, observed"]
    assert many.series[0].y == tuple((part["low"] + part["high"]) / 2 for part in bins)


def test_tail_joins_the_points_of_a_fused_model(results, fused_results):
    assert tail_chart(results) is None
    (series,) = tail_chart([results[0], fused_results]).series
    assert series.marks[0] == "0" and series.marks[-1] == "1"
    assert (series.x[0], series.y[0]) == tuple(fused_results.best["metrics"][name] for name in ("P@5", "PSP@5"))
    assert series.colour == 1


def test_validation_curves_describe_what_is_measured(results, fused_results):
    assert "weights are chosen after training" in learning_charts(results[:1])[1].about
    for runs in ([fused_results], [results[0], fused_results]):
        about = learning_charts(runs)[1].about
        assert about.startswith("The sum of the network's heads with equal weights:")
        assert "fusion of all, are not included yet" in about


def test_chart_names_are_unique(results, fused_results):
    names = [chart.name for chart in all_charts([*results, fused_results])]
    assert len(set(names)) == len(names) == 9


def test_description_of_bars():
    bars = Chart("bar", "b", "Bars", "x", "y", (Series("a", (0, 1), (40.0, 50.0), 0),), "", ("head", "tail"))
    assert bars.description() == "Bars. a: head 40.00, tail 50.00."


def test_description_of_lines_and_points():
    line = Chart("line", "l", "Loss", "steps", "loss", (Series("select", (1, 2, 3), (3.0, 2.0, 0.5), 0),), "")
    assert line.description() == "Loss. select: from 3 to 0.5."
    point = Chart("point", "p", "P and PSP", "P@5", "PSP@5", (Series("all", (30.0,), (25.5,), 0),), "")
    assert point.description() == "P and PSP. all: P@5 30.00, PSP@5 25.50."
    row = Series("all", (30.0, 28.0, 26.0), (25.0, 26.0, 27.0), 0, marks=("0", "0.5", "1"))
    points = Chart("point", "p", "P and PSP", "P@5", "PSP@5", (row,), "")
    assert points.description() == "P and PSP. all: P@5 30.00, PSP@5 25.00 to P@5 26.00, PSP@5 27.00."


def test_labels_above_a_threshold(fused_results, results):
    sets = fused_results.best["threshold"]
    chart = threshold_chart([fused_results])
    assert [series.name for series in chart.series] == ["precision", "recall", "micro F1", "sample F1", "chosen"]
    assert (chart.series[-1].x, chart.series[-1].y) == ((sets["labels_per_text"],), (sets["micro_f1"],))
    for series in chart.series[:-1]:
        assert list(series.x) == sorted(series.x) and max(series.x) <= max(2.0, 2.5 * sets["labels_per_text"])
    two = threshold_chart([fused_results, replace(fused_results, name="other")])
    assert [series.name for series in two.series] == ["<fused>", "<fused>, chosen", "other", "other, chosen"]
    assert chart.name in [each.name for each in all_charts([fused_results])]
    assert threshold_chart(results) is None  # too few validation rows
