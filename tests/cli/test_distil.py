"""``megalabel distil``: from a run to a student that predicts, is indexed and exported."""

import json

import megalabel as ml

DATA = "synthetic:points=300,labels=40,seed=5"
QUICK = [
    part
    for change in ("batching.batch_size=64", "batching.refresh={start: 1, every: 2}", "training.epochs=1")
    for part in ("--set", change)
]


def test_a_student_is_a_model_like_any_other(call, trained, tmp_path):
    out = tmp_path / "student"
    code, shown, err = call("distil", trained, "--out", out, *QUICK, "--weight", 0.7)
    assert (code, shown) == (0, "") and "the teacher answers" in err, err
    code, shown, err = call("predict", out, "--text", "some text", "-k", 2, "--json")
    assert code == 0 and json.loads(shown), err
    code, _, err = call("distil", trained, "--out", out, *QUICK, "--weight", 0.7, "--resume")
    assert code == 0 and "this run is complete" in err
    code, _, err = call("labels", "add", out, "--text", "quokka wombat")
    assert code == 0, err
    assert ml.Model.load(out).predict(["quokka wombat"], k=1)[0][0].text == "quokka wombat"


def test_mistakes_are_one_line(call, trained, tmp_path):
    for arguments, message in [
        (["--weight", 2], "weight must lie in 0 to 1, not 2.0"),
        (["--top", 0], "top must be at least 1, not 0"),
        (["--recipe", "auto"], "one vector per label, which auto does not"),
        (["--recipe", "distill"], "did you mean"),
        (["--data", "synthetic:points=300,labels=50"], "does not have the labels of the teacher"),
        (["--set", "heads.labels.weight=0"], "heads.labels"),
        (["--resume"], "no run here to resume"),
    ]:
        code, shown, err = call("distil", trained, "--out", tmp_path / "out", *arguments)
        assert (code, shown) == (2, ""), err
        assert message in err.splitlines()[-1], err
        assert not (tmp_path / "out").exists()
    code, _, err = call("distil", tmp_path, "--out", tmp_path / "out")
    assert code == 2 and "there is no model here" in err
