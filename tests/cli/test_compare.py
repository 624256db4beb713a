"""``megalabel compare`` and the report of ``train``: correct results, and one-line errors with exit code 2."""

import json
import shutil

import pytest

from megalabel import load, save
from megalabel.__main__ import main

DATA = "synthetic:points=300,labels=40,seed=5"
SMALL = [
    "encoder.source=null",
    "encoder.options={dim: 16, words: 512, bigrams: 0, characters: 0}",
    "batching.batch_size=64",
    "batching.refresh={start: 1, every: 2}",
    "training.epochs=2",
]


def settings(*changes):
    return [part for change in (*SMALL, *changes) for part in ("--set", change)]


@pytest.fixture
def call(capsys):
    """Run a command in this process; return (exit code, stdout, stderr)."""

    def call(*arguments):
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        return (code, *capsys.readouterr())

    return call


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    for name, change in (("first", "seed=0"), ("second", "heads.dual.loss.kind=softmax")):
        command = ["train", "unidec-cpu", "--data", DATA, "--out", str(folder / name), *settings(change)]
        assert main(command) == 0
    return folder / "first", folder / "second"


@pytest.fixture
def own(runs, tmp_path):
    """A run of one's own, to spoil."""
    return shutil.copytree(runs[0], tmp_path / "own")


def refused(result, *words):
    code, out, err = result
    last = err.strip().splitlines()[-1]
    assert (code, out) == (2, ""), err
    assert last.startswith("megalabel: ") and "Traceback" not in err
    for word in words:
        assert word in last, last
    return True


def test_train_leaves_a_report(runs):
    for run in runs:
        assert (run / "report.html").read_text().startswith("<!DOCTYPE html>")
        assert json.loads((run / "evaluation.json").read_text())["data"]["split"] == "test"
        assert not (run / "plots").exists()


def test_train_without_a_report(call, tmp_path):
    code, _, err = call("train", "unidec-cpu", "--data", DATA, "--out", tmp_path / "run", *settings(), "--no-report")
    assert code == 0 and "report:" not in err
    assert not (tmp_path / "run" / "report.html").exists()
    assert refused(call("compare", tmp_path / "run"), "run", "has not been evaluated", "--data")


def test_a_failed_report_keeps_the_run(call, tmp_path):
    run = tmp_path / "run"
    (run / "report.html").mkdir(parents=True)
    (run / "report.html" / "keep").write_text("keep")
    code, _, err = call("train", "unidec-cpu", "--data", DATA, "--out", run, *settings())
    assert code == 0
    assert "the run is complete, but its report could not be written" in err
    assert call("predict", run, "--text", "some text")[0] == 0


def test_saved_and_measured_results_agree(call, runs):
    code, kept, err = call("compare", *runs)
    assert code == 0 and err == ""
    code, measured, _ = call("compare", *runs, "--data", DATA)
    assert code == 0
    assert kept == measured
    lines = kept.splitlines()
    assert lines[0].endswith("60 test rows, 40 labels; all metrics in percent")
    assert [line.split()[:2] for line in lines[3:9]] == [
        [run, head] for run in ("first", "second") for head in ("all", "dual", "classifier")
    ]
    assert any(line.split() == ["heads.dual.loss.kind", "decoupled_softmax", "softmax"] for line in lines)


def test_json(call, runs):
    code, out, _ = call("compare", *runs, "--json")
    document = json.loads(out)
    assert code == 0
    assert document["recipe_diff"] == {
        "heads.dual.loss.kind": {"first": "decoupled_softmax", "second": "softmax"},
    }
    report = json.loads(call("evaluate", runs[1], "--data", DATA, "--heads", "dual", "--json")[1])
    assert document["runs"][1]["heads"]["dual"]["metrics"] == pytest.approx(report["metrics"])
    assert {"parameters", "model_bytes", "texts_per_second", "weights"} <= set(document["runs"][0])


def test_page_and_plots(call, runs, tmp_path):
    page = tmp_path / "new" / "page.html"
    code, out, err = call("compare", *runs, "--html", page, "--png", "--json")
    assert code == 0, err
    json.loads(out)
    assert str(page) in err
    assert "2 runs on" in page.read_text()
    assert len(list((tmp_path / "new" / "plots").glob("*.png"))) == 6


def test_one_run_and_a_saved_model(call, runs, tmp_path):
    code, out, _ = call("compare", runs[0])
    assert code == 0 and "What was changed in the recipe unidec-cpu" in out
    code, out, _ = call("compare", runs[0] / "model", "--data", DATA, "--html", tmp_path / "page.html")
    assert code == 0
    assert "Learning curves" not in (tmp_path / "page.html").read_text()


def test_runs_with_the_same_name_are_distinguished(call, runs, tmp_path):
    other = shutil.copytree(runs[1], tmp_path / "first")
    out = call("compare", runs[0], other)[1]
    assert f"{runs[0].parent.name}/first" in out and f"{tmp_path.name}/first" in out


def test_wrong_use(call, runs, own, tmp_path):
    assert refused(call("compare", runs[0], tmp_path), str(tmp_path), "no model here")
    assert refused(call("compare", tmp_path / "nowhere"), "nowhere", "no model here")
    assert refused(call("compare", runs[0], runs[0]), "given twice")
    assert refused(call("compare"), "RUN")
    assert refused(call("compare", runs[0], "--png"), "--html")
    assert refused(call("compare", runs[0], "--html", tmp_path), "folder")
    assert refused(call("compare", runs[0], "--split", "val"), "not val", "--data")
    assert refused(call("compare", runs[0], "--data", DATA, "--split", "val"), str(runs[0]), "no val rows")
    (own / "metrics.jsonl").write_text("no\njson\n")
    assert refused(call("compare", own), "metrics.jsonl:1")


def test_other_labels_than_the_data(call, runs, tmp_path):
    made = load(DATA)
    texts = [f"other words {i}" for i in range(40)]
    save(made.replace(labels=type(made.labels)(texts, made.labels.uids)), tmp_path / "other")
    assert refused(call("compare", *runs, "--data", tmp_path / "other"), "only 0 of 40 labels")


def test_labels_that_came_and_went(call, runs, own):
    before = call("compare", runs[0], "--data", DATA, "--json")[1]
    assert call("labels", "add", own, "--text", "a new one")[0] == 0
    code, out, err = call("compare", own, "--data", DATA, "--json")
    assert code == 0 and "1 label was added to the model later and left out" in err
    assert json.loads(out)["runs"][0]["heads"] == json.loads(before)["runs"][0]["heads"]
    assert call("labels", "remove", own, "added-40")[0] == 0
    code, out, err = call("compare", own, "--data", DATA, "--json")
    assert code == 0 and "left out" not in err
    assert json.loads(out)["runs"][0]["heads"] == json.loads(before)["runs"][0]["heads"]


def test_runs_measured_on_different_data(call, runs, tmp_path):
    run = tmp_path / "third"
    other = DATA.replace("seed=5", "seed=6")
    assert call("train", "unidec-cpu", "--data", other, "--out", run, *settings())[0] == 0
    assert refused(call("compare", runs[0], run), "first was evaluated on", "third on other rows", "--data")
    assert call("compare", runs[0], run, "--data", DATA)[0] == 0


def test_help_has_an_example(call):
    code, out, _ = call("compare", "--help")
    assert code == 0
    for word in ("--html", "--png", "--data", "Example"):
        assert word in out
