import json
import shutil

import pytest

from megalabel.errors import DataError, SettingError
from megalabel.report.compare_runs import compare_runs


def test_order_and_names(runs, clean):
    said = []
    compared = compare_runs(list(runs)[::-1], clean, say=said.append)
    assert [run.name for run in compared] == ["second", "first"]
    assert [run.recipe["training"]["epochs"] for run in compared] == [2, 3]
    assert said == [f"measuring {name} on {clean.name}" for name in ("second", "first")]


def test_folders_without_a_model_and_duplicates(run):
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
