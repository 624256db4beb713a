from dataclasses import replace

import pytest

from megalabel.report.plots import all_plots, bin_plots, calibration_plot, learning_plots, tail_plot, trade_off_plot


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


def test_calibration_has_predicted_beside_observed(results, fused_results):
    assert calibration_plot(results) is None
    chart = calibration_plot([fused_results])
    bins = [part for part in fused_results.calibration["bins"] if part["labels"]]
    assert [series.name for series in chart.series] == ["predicted", "observed"]
    assert chart.series[1].y == tuple(part["observed"] for part in bins)
    assert chart.groups[0] == f"{(bins[0]['low'] + bins[0]['high']) / 2:g}"
    assert f"{fused_results.calibration['error']:.1f} points" in chart.about
    many = calibration_plot([results[0], fused_results])
    assert [series.name for series in many.series] == ["as predicted", "<fused>, observed"]
    assert many.series[0].y == tuple((part["low"] + part["high"]) / 2 for part in bins)


def test_tail_joins_the_points_of_a_fused_model(results, fused_results):
    assert tail_plot(results) is None
    (series,) = tail_plot([results[0], fused_results]).series
    assert series.marks[0] == "0" and series.marks[-1] == "1"
    assert (series.x[0], series.y[0]) == tuple(fused_results.best["metrics"][name] for name in ("P@5", "PSP@5"))
    assert series.colour == 1


def test_validation_curves_say_what_they_are_of(results, fused_results):
    assert "weights are chosen after training" in learning_plots(results[:1])[1].about
    for runs in ([fused_results], [results[0], fused_results]):
        about = learning_plots(runs)[1].about
        assert about.startswith("The heads of the network added up, each counting the same:")
        assert "fusion of all, are not in it yet" in about


def test_every_plot_has_a_name_of_its_own(results, fused_results):
    names = [chart.name for chart in all_plots([*results, fused_results])]
    assert len(set(names)) == len(names) == 8
