from dataclasses import replace

import pytest

from megalabel.report.plots import bin_plots, learning_plots, trade_off_plot


def without(record, *names):
    return {name: value for name, value in record.items() if name not in names}


def test_the_bars_of_one_colour_add_up_to_precision(results):
    for chart in bin_plots(results):
        for run, series in zip(results, chart.series, strict=True):
            assert sum(series.y) == pytest.approx(run.best["metrics"]["P@5"])
            assert series.name == run.name


def test_one_run_has_a_bar_for_each_head(results):
    for chart in bin_plots(results[:1]):
        assert [series.name for series in chart.series] == ["all", "dual", "classifier"]
        assert len(chart.groups) == len(chart.series[0].y)


def test_trade_off_has_a_point_for_each_run_and_head(results):
    chart = trade_off_plot(results)
    assert [series.name for series in chart.series[:3]] == ["<first>, all", "<first>, dual", "<first>, classifier"]
    assert len(chart.series) == 6
    first = chart.series[0]
    metrics = results[0].best["metrics"]
    assert (first.x[0], first.y[0]) == (metrics["P@5"], metrics["PSP@5"])
    assert len({(series.colour, series.shape) for series in chart.series}) == 6


def test_learning_curves(results):
    loss, validation = learning_plots(results[1:])
    assert [series.name for series in loss.series] == ["select", "refit"]
    assert [series.name for series in validation.series] == ["P@1", "PSP@5"]
    assert loss.x_label == "seconds of training"
    assert [chart.name for chart in learning_plots(results)] == ["loss", "validation-P-at-1", "validation-PSP-at-5"]
    assert len(validation.series[0].x) == 2  # epochs


@pytest.mark.parametrize(("seconds", "label", "last"), [(1.0, "seconds of training", 12.0), (60.0, "minutes", 12.0)])
def test_time_where_every_run_has_it(results, seconds, label, last):
    log = [{**record, "seconds": seconds * record["step"]} for record in results[0].log]
    timed = replace(results[0], log=log)
    untimed = replace(results[1], log=[without(record, "seconds") for record in results[1].log])
    loss = learning_plots([timed])[0]
    assert loss.x_label.startswith(label)
    assert loss.series[0].x[-1] == pytest.approx(last)
    assert learning_plots([timed, untimed])[0].x_label == "steps"
