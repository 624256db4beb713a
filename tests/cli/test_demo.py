"""`megalabel demo`, on a small set: what a newcomer sees."""

import json

DEMO = ["demo", "--data", "synthetic:points=60,labels=12,seed=1"]


def test_demo_trains_compares_and_writes_a_run(call, tmp_path):
    out = tmp_path / "run"
    code, printed, _ = call(*DEMO, "--out", out, "--json", "-k", "3")
    assert code == 0
    document = json.loads(printed)
    assert list(document["compared"]) == ["most frequent labels", "MiniLM, untrained", "auto"]
    assert document["compared"]["auto"]["P@1"] == document["metrics"]["P@1"]
    assert [len(question["labels"]) for question in document["questions"]] == [3, 3, 3]
    assert {"demo.json", "model", "predictions.jsonl", "recipe.yaml", "report.html"} <= {
        path.name for path in out.iterdir()
    }
    assert call("predict", out, "--text", "some words", "-k", "2")[0] == 0
    (out / "demo.json").unlink()
    code, _, err = call(*DEMO, "--out", out)
    assert code == 2
    assert "not the folder of an earlier demo" in err
