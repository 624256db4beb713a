"""``megalabel update``: new rows and corrections from a table."""

import csv
import json

import pytest

import megalabel as ml
from megalabel.data.formats._cells import joiner

DATA = "synthetic:points=300,labels=40,seed=5"


@pytest.fixture
def table(tmp_path):
    """Twenty rows with new texts and a correction, as the page and `data convert` write them."""
    data = ml.load(DATA)
    join, _ = joiner(data.labels.texts)
    rows = [(f"fresh {data.train.texts[row]}", data.train.targets[row].indices) for row in range(20)]
    rows.append((data.train.texts[0], [5]))
    with (tmp_path / "more.csv").open("w", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(["text", "labels"])
        writer.writerows((text, join([data.labels.texts[label] for label in labels])) for text, labels in rows)
    return tmp_path / "more.csv"


def test_rows_of_a_table(call, folder, table):
    code, out, err = call("update", folder, "--data", table, "--epochs", 1, "--json")
    assert code == 0, err
    history = json.loads(out)
    assert history["rows"] == {"new": 20, "corrected": 1, "all": 260}
    assert json.loads((folder / "updates.jsonl").read_text()) == history
    assert "20 new texts, 1 corrected, 0 known already" in err
    code, out, _ = call("evaluate", folder, "--data", DATA, "--json")
    assert code == 0 and json.loads(out)["metrics"]["P@1"] > 0
    code, _, err = call("update", folder, "--data", table)
    assert code == 2 and "nothing new, all rows are known" in err


def test_mistakes_are_one_line(call, folder, table, tmp_path):
    (tmp_path / "other.csv").write_text("text,labels\nsome text,zebra\nanother,giraffe\n")
    (tmp_path / "bare.csv").write_text("text,labels\nsome text,\n")
    for arguments, message in [
        (["--data", tmp_path / "other.csv"], "none of its 2 labels"),
        (["--data", tmp_path / "bare.csv"], "no positives"),
        (["--data", table, "--rate", -1], "rate must be above 0, not -1.0"),
        (["--data", table, "--validation", 1], "validation must lie in 0 to 1, not 1.0"),
        (["--data", table, "--out", tmp_path], "the folder exists and is not empty"),
        (["--data", tmp_path / "none.csv"], "no such file"),
    ]:
        code, out, err = call("update", folder, *arguments)
        assert (code, out) == (2, "")
        assert message in err.splitlines()[-1], err
    assert not (folder / "updates.jsonl").exists()


def test_ctrl_c_leaves_the_old_model(call, folder, table, monkeypatch):
    from megalabel.training.loop import Loop

    def stop(self):
        import signal

        signal.raise_signal(signal.SIGINT)
        yield from ()

    before = (folder / "model" / "model.json").read_bytes()
    monkeypatch.setattr(Loop, "run_epoch", stop)
    monkeypatch.setattr("megalabel.training.phase.Phase._out_of_patience", lambda self, best: False)
    code, _, err = call("update", folder, "--data", table)
    assert code == 130 and "stopped; the model is as it was" in err
    assert (folder / "model" / "model.json").read_bytes() == before
