import json

import numpy as np
import pytest

from megalabel import Ensemble, Model, load, save
from megalabel.data.predictions import write_predictions
from megalabel.metrics import measure
from megalabel.metrics.annif import annif_metrics
from megalabel.types import TopK


@pytest.fixture
def data(tmp_path):
    data = load("synthetic:points=200,labels=40,seed=4")
    save(data, tmp_path / "set")
    return data


@pytest.fixture
def ids(data, tmp_path):
    rng = np.random.default_rng(0)
    ids = np.stack([rng.permutation(40)[:10] for _ in range(len(data.test))])
    scores = np.tile(-np.arange(10, dtype=np.float32), (len(ids), 1))
    write_predictions(tmp_path / "p.jsonl", data.test, TopK(ids, scores))
    return ids


def test_json_document(run, data, ids):
    code, out, err = run("evaluate", "--predictions", "p.jsonl", "--data", "set", "--json")
    assert code == 0, err
    document = json.loads(out)
    expected = measure(data, ids).to_dict()
    assert document["metrics"] == pytest.approx(expected["metrics"])
    assert {"P@1", "PSP@5", "nDCG@3", "R@10", "RP@5", "coverage@1"} <= set(document["metrics"])
    assert (document["propensity"]["A"], document["propensity"]["B"]) == (0.55, 1.5)
    assert (document["data"], document["split"]) == ("synthetic", "test")


def test_annif(call, data, ids, tmp_path):
    command = ("evaluate", "--predictions", tmp_path / "p.jsonl", "--data", tmp_path / "set", "--annif")
    code, out, _ = call(*command, "--json")
    assert code == 0
    assert json.loads(out)["annif"] == pytest.approx(annif_metrics(ids, data.test.targets))
    code, out, _ = call(*command)
    assert f"F1@5:                         \t{annif_metrics(ids, data.test.targets)['F1@5']:.4f}" in out


def test_table_prints_a_and_b(run, data, ids):
    code, out, _ = run("evaluate", "--predictions", "p.jsonl", "--data", "set")
    assert code == 0
    assert "PSP" in out
    assert "0.55" in out
    assert "1.5" in out


def test_missing_rows_count_as_misses_and_are_reported(run, data, ids, tmp_path):
    lines = (tmp_path / "p.jsonl").read_text().splitlines()
    (tmp_path / "half.jsonl").write_text("\n".join(lines[:20]))
    code, out, err = run("evaluate", "--predictions", "half.jsonl", "--data", "set", "--json")
    assert code == 0
    assert "20 of 40 test rows have no prediction" in err
    cut = ids.copy()
    cut[20:] = -1
    assert json.loads(out)["metrics"] == pytest.approx(measure(data, cut).to_dict()["metrics"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--predictions", "none.jsonl", "--data", "set"], "none.jsonl: no such file"),
        (["--predictions", "p.jsonl", "--data", "set", "--split", "val"], "has no val rows"),
        (["--predictions", "p.jsonl", "--data", "elsewhere"], "elsewhere"),
        (["--predictions", "p.jsonl"], "--data"),
    ],
)
def test_mistakes(call, data, ids, tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    code, out, err = call("evaluate", *arguments)
    assert (code, out) == (2, "")
    assert words in err
    assert "Traceback" not in err


def test_several_runs_as_one(run, summed_run, fused_run, served_data):
    code, out, err = run("evaluate", summed_run, "--with", fused_run, "--data", served_data, "--json")
    assert code == 0, err
    document = json.loads(out)
    both = Ensemble([Model.load(summed_run), Model.load(fused_run)])
    assert document["metrics"] == pytest.approx(both.evaluate(load(served_data)).metrics)
    assert (document["with"], document["by"]) == ([str(fused_run)], "rank")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--with", "nowhere"], "nowhere"),
        (["--with", "RUN", "--by", "rnk"], "did you mean 'rank'"),
        (["--by", "score"], "--by has no effect: there is one run"),
    ],
)
def test_runs_that_cannot_be_joined(run, summed_run, served_data, arguments, words):
    arguments = [summed_run if word == "RUN" else word for word in arguments]
    code, _, err = run("evaluate", summed_run, "--data", served_data, *arguments)
    assert code != 0 and words in err and "Traceback" not in err
    assert len(err.strip().splitlines()) == 1


def test_predictions_of_a_file_join_no_run(run, data, ids, summed_run):
    code, _, err = run("evaluate", "--predictions", "p.jsonl", "--data", "set", "--with", summed_run)
    assert code != 0 and "need a RUN folder" in err


def test_a_table_of_new_rows(call, trained, tmp_path):
    """Own columns, labels by text, one unknown label; the predictions of the same table give the same figures."""
    made = load("synthetic:points=300,labels=40,seed=5")
    lines = ["body;tags"]
    for row in range(20):
        names = [made.labels.texts[label] for label in made.test.targets[row].indices]
        lines.append(f"{made.test.texts[row]};{'|'.join([*names, *(['brand new'] if row < 3 else [])])}")
    table = tmp_path / "fresh.csv"
    table.write_text("\n".join(lines) + "\n")
    columns = ["--text-column", "body", "--labels-column", "tags"]
    code, out, err = call("evaluate", trained, "--data", table, *columns, "--json")
    assert code == 0, err
    assert "fresh: 1 label is unknown to the model, missed in 3 of 20 rows: 'brand new'" in err
    document = json.loads(out)
    assert (document["rows"], document["unknown_labels"]) == (20, ["brand new"])
    guesses = tmp_path / "p.jsonl"
    assert call("predict", trained, "--input", table, "--text-column", "body", "-k", 40, "--out", guesses)[0] == 0
    code, out, err = call("evaluate", "--predictions", guesses, "--data", table, *columns, "--json")
    assert code == 0, err
    named = json.loads(out)["metrics"]
    same = [name for name in named if name.split("@")[0] in ("P", "R", "nDCG", "MRR")]
    assert len(same) > 8
    assert {name: named[name] for name in same} == pytest.approx({name: document["metrics"][name] for name in same})
    code, out, _ = call("compare", trained, "--data", table, *columns)
    assert code == 0 and "20 test rows" in out


def test_predictions_by_name(run, data, tmp_path):
    lines = [json.dumps({"uid": uid, "labels": ["not a label", data.labels.texts[3], data.labels.uids[5]]})
             for uid in data.test.uids]  # fmt: skip
    (tmp_path / "p.jsonl").write_text("\n".join(lines))
    code, out, err = run("evaluate", "--predictions", "p.jsonl", "--data", "set", "--json")
    assert code == 0, err
    assert "1 predicted label is not in synthetic, wrong in every row" in err
    rows = np.tile([40, 3, 5], (len(data.test), 1))
    assert json.loads(out)["metrics"] == pytest.approx(measure(data, rows).to_dict()["metrics"])
    assert json.loads(out)["metrics"]["P@1"] == 0
