import json
import shutil

import pytest

from megalabel.errors import DataError, SettingError
from megalabel.report.compare_runs import compare_runs
from megalabel.report.results import read_results
from megalabel.report.write_report import write_report


@pytest.fixture
def run(runs, data, tmp_path):
    """A run of one's own with its report."""
    folder, model = next(iter(runs.items()))
    mine = shutil.copytree(folder, tmp_path / "mine")
    write_report(mine, model, data)
    return mine


def test_what_is_written_is_read(run, runs, data):
    found = read_results(run, "mine")
    measured = next(iter(runs.values())).evaluate(data)
    assert found.best["metrics"] == pytest.approx(measured.metrics)
    assert found.best == json.loads(json.dumps(measured.to_dict()))
    assert list(found.heads) == ["all", "dual", "classifier"]
    assert found.recipe["training"]["epochs"] == 3
    assert 0 < len(found.samples) <= 50
    assert all(len(sample["labels"]) == 5 for sample in found.samples)
    assert found.log


def test_samples_tell_the_truth(results, data):
    texts = {text: row for row, text in enumerate(data.test.texts)}
    for sample in results[0].samples:
        row = data.test.targets[texts[sample["text"]]]
        truth = {data.labels.texts[label] for label in row.indices}
        right = {label["text"] for label in sample["labels"] if label["relevant"]}
        assert right == truth & {label["text"] for label in sample["labels"]}
        assert set(sample["missed"]) == truth - right
        scores = [label["score"] for label in sample["labels"]]
        assert scores == sorted(scores, reverse=True)


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


def test_other_rows_or_none(run, runs, results):
    with pytest.raises(DataError, match="of test rows, not val"):
        read_results(run, "mine", split="val")
    folder = next(iter(runs))
    with pytest.raises(DataError, match="has not been evaluated"):
        read_results(folder, "first")
    with pytest.raises(DataError, match="no model here"):
        compare_runs([run, run.parent])
    with pytest.raises(SettingError, match="given twice"):
        compare_runs([run, run / ".." / "mine"])


def test_runs_evaluated_on_other_data(run, tmp_path):
    other = shutil.copytree(run, tmp_path / "other")
    document = json.loads((other / "evaluation.json").read_text())
    document["data"]["fingerprint"] = "0"
    (other / "evaluation.json").write_text(json.dumps(document))
    with pytest.raises(DataError, match="mine was evaluated on <i>set</i>, other on other rows"):
        compare_runs([run, other])


def test_a_fused_run_keeps_calibration_and_trade_off(fused, tmp_path):
    folder, model, data = fused
    mine = shutil.copytree(folder, tmp_path / "mine")
    write_report(mine, model, data)
    found = read_results(mine, "mine")
    assert found.fused
    assert len(found.calibration["bins"]) == 10
    assert [one["tail"] for one in found.trade_off][::6] == [0.0, 1.0]
    network = sum(value.numel() for value in model.network.parameters())
    linear = model.fitted.heads["linear"].weights_.nnz
    assert found.facts["parameters"] >= network + linear
