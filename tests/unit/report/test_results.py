import json
import math
import shutil

import pytest

from megalabel.errors import DataError
from megalabel.report import write_report
from megalabel.report.results import POINTS, Curves, read_results


def test_save_and_read_results(run, runs, data):
    actual = read_results(run, "mine")
    measured = next(iter(runs.values())).evaluate(data)
    assert actual.best["metrics"] == pytest.approx(measured.metrics)
    assert actual.best == json.loads(json.dumps(measured.to_dict()))
    assert list(actual.heads) == ["all", "dual", "classifier"]
    assert actual.recipe["training"]["epochs"] == 3
    assert 0 < len(actual.samples) <= 50
    assert all(len(sample["labels"]) == 5 for sample in actual.samples)
    assert actual.log


def test_a_changed_model_needs_a_new_evaluation(run):
    card = json.loads((run / "model" / "model.json").read_text())
    (run / "model" / "model.json").write_text(json.dumps(card | {"seal": "another"}))
    with pytest.raises(DataError, match="of another model"):
        read_results(run, "mine")


@pytest.mark.parametrize(
    ("content", "words"),
    [("{", "cannot be read"), ("[]", "cannot be read"), ("{}", "cannot be read"), ('{"format": 9}', "format 9")],
)
def test_a_broken_evaluation(run, content, words):
    (run / "evaluation.json").write_text(content)
    with pytest.raises(DataError, match=words):
        read_results(run, "mine")


def test_another_split_or_no_evaluation(run, runs):
    with pytest.raises(DataError, match="of test rows, not val"):
        read_results(run, "mine", split="val")
    with pytest.raises(DataError, match="has not been evaluated"):
        read_results(next(iter(runs)), "first")


def test_a_fused_run_keeps_calibration_and_trade_off(fused, tmp_path):
    folder, model, data = fused
    mine = shutil.copytree(folder, tmp_path / "mine")
    write_report(mine, model, data)
    actual = read_results(mine, "mine")
    assert actual.fused
    assert len(actual.calibration["bins"]) == 10
    assert [one["tail"] for one in actual.trade_off][::6] == [0.0, 1.0]
    network = sum(value.numel() for value in model.network.parameters())
    linear = model.fitted.heads["linear"].weights_.nnz
    assert actual.facts["parameters"] >= network + linear


def steps(count, phase="select", **more):
    return [
        {"step": step, "phase": phase, "epoch": (step - 1) // 10, "loss": 1 / step}
        | {key: value(step) for key, value in more.items()}
        for step in range(1, count + 1)
    ]


def test_no_records():
    curves = Curves([])
    assert not curves.timed
    assert curves.phases == [] and curves.totals() == {}
    assert curves.loss("select") == curves.validation("P@1") == []
    assert curves.best_epoch("P@1") is None


@pytest.mark.parametrize("count", [1, 119, 120, 121, 1000])
def test_long_lines_are_averaged(count):
    line = Curves(steps(count)).loss("select")
    assert 1 <= len(line) <= POINTS
    assert line[-1][0] == count
    if count == 1000:
        assert line[0] == (9.0, pytest.approx(sum(1 / step for step in range(1, 10)) / 9))


def test_pauses_over_time_are_gaps():
    def seconds(step):
        return 0.1 * step + (3.0 if step > 20 else 0.0) + (0.2 if step > 30 else 0.0)

    curves = Curves(steps(40, seconds=seconds))
    line = curves.loss("select", timed=True)
    gaps = [place for place, (_, loss) in enumerate(line) if math.isnan(loss)]
    assert gaps == [20] and line[20][0] == line[21][0] == pytest.approx(5.1)
    assert len(line) == 41 and not any(math.isnan(loss) for _, loss in curves.loss("select"))


def test_steps_without_a_loss_are_skipped():
    records = [*steps(2), {"step": 3, "phase": "select", "epoch": 0, "loss": None}]
    assert len(Curves(records).loss("select")) == 2


def test_validation_is_of_the_selecting_training_only():
    values = [(1, 50.0), (2, 60.0), (3, 60.0)]
    records = [{"step": 4 * n, "phase": "select", "epoch": n, "val": {"P@1": value}} for n, value in values]
    records.insert(0, {"step": 4, "phase": "select-clusters", "epoch": 1, "val": {"P@1": 90.0}})
    curves = Curves(records)
    assert curves.validation("P@1") == [(4.0, 50.0), (8.0, 60.0), (12.0, 60.0)]
    assert curves.best_epoch("P@1") == 2
    assert curves.validation("PSP@5") == []


def test_totals():
    records = steps(20) + steps(30, "refit")
    assert Curves(records).totals() == {"steps": 30, "epochs": 3}


def test_time_and_memory_if_they_are_logged():
    more = {"seconds": lambda step: 0.5 * step, "texts": lambda step: 64, "memory_mb": lambda step: 100 + step}
    records = steps(20, **more) + steps(30, "refit", **more)
    curves = Curves(records)
    assert curves.timed
    assert curves.loss("refit", timed=True)[-1][0] == 15.0
    totals = curves.totals()
    assert totals["seconds"] == 25.0
    assert totals["texts_per_second"] == pytest.approx(50 * 64 / 25)
    assert totals["memory_mb"] == 130
    assert not Curves([*records, *steps(1)]).timed
