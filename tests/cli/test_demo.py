"""`megalabel demo`, on a small set: what a newcomer sees."""

import json

from megalabel.__main__ import main

ASK = ["demo", "--data", "synthetic:points=60,labels=12,seed=1"]


def test_demo_trains_compares_and_leaves_a_run(tmp_path, capsys):
    out = tmp_path / "run"
    assert main([*ASK, "--out", str(out), "--json", "-k", "3"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert list(document["compared"]) == ["most frequent labels", "MiniLM, untrained", "auto"]
    assert document["compared"]["auto"]["P@1"] == document["metrics"]["P@1"]
    assert [len(question["labels"]) for question in document["questions"]] == [3, 3, 3]
    assert {"demo.json", "model", "predictions.jsonl", "recipe.yaml", "report.html"} <= {
        path.name for path in out.iterdir()
    }
    assert main(["predict", str(out), "--text", "some words", "-k", "2"]) == 0
    (out / "demo.json").unlink()
    capsys.readouterr()
    assert main([*ASK, "--out", str(out)]) == 2
    assert "this folder is not of an earlier demo" in capsys.readouterr().err
