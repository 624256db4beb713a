"""``megalabel tune``: a search that can be killed at any moment, and whose best recipe trains."""

import json
import os
import signal
import subprocess
import sys
import time
from functools import partial

import pytest

from megalabel.training.run_log import read_log

DATA = "synthetic:points=300,labels=40,seed=5"
SPACE = ["--space", "training.encoder.lr=1e-4..1e-2 log", "--space", "training.epochs=1,2", "--only"]


@pytest.fixture
def tune(call, settings, tmp_path):
    def tune(*more, recipe="unidec-cpu", out=tmp_path / "tuned"):
        return call("tune", recipe, "--data", DATA, "--out", out, *settings(), *more)

    return tune


def refused(result, *words):
    code, out, err = result
    assert (code, out) == (2, ""), err
    last = err.strip().splitlines()[-1]
    assert last.startswith("megalabel: ") and "Traceback" not in err
    assert all(word in last for word in words), last
    return True


def test_finds_a_recipe_that_trains(tune, call, tmp_path):
    code, out, err = tune(*SPACE, "--trials", 3)
    assert code == 0, err
    assert "training.encoder.lr: 0.0001..0.01 log" in err and "trial 3 of 3" in err and "0:00 left" in err
    assert "next: megalabel train" in err
    head, *rows = out.splitlines()
    assert head.split() == ["trial", "nDCG@5", "epoch", "time", "settings"]
    assert sorted(row.split()[0] for row in rows) == ["1", "2", "3"]
    values = [float(row.split()[1]) for row in rows]
    assert values == sorted(values, reverse=True)
    assert any("the recipe as it is" in row for row in rows)
    best = tmp_path / "tuned" / "best.yaml"
    assert call("train", best, "--data", DATA, "--out", tmp_path / "run", "--no-report")[0] == 0
    code, out, _ = tune(*SPACE, "--trials", 3, "--resume", "--json")
    document = json.loads(out)
    assert code == 0 and document["metric"] == "nDCG@5" and len(document["trials"]) == 3
    assert max(trial["value"] for trial in document["trials"]) == pytest.approx(values[0], abs=0.005)


def test_mistakes(tune, tmp_path):
    assert refused(tune("--space", "training.epocs=1,2"), "--space", "'training.epocs'", "did you mean 'epochs'?")
    assert refused(tune("--space", "training.epochs"), "is not key=values", "for example")
    assert refused(tune("--space", "training.epochs=5..2"), "the smaller number first")
    assert refused(tune("--only"), "--only needs --space")
    assert refused(tune(recipe="unidec-cpo"), "unidec-cpo", "did you mean 'unidec-cpu'?")
    assert refused(tune("--resume"), "no search here to resume")
    assert not (tmp_path / "tuned").exists()
    (tmp_path / "tuned").mkdir()
    (tmp_path / "tuned" / "notes").write_text("")
    assert refused(tune(*SPACE), "not empty")


@pytest.mark.extra
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["SIGINT", "SIGKILL"])
def test_stopped_and_resumed(settings, call, tmp_path, number):
    arguments = ["tune", "unidec-cpu", "--data", DATA, *settings("training.epochs=3"), *SPACE, "--trials", "4"]
    out = tmp_path / "killed"
    command = [sys.executable, "-m", "megalabel", *map(str, arguments), "--out", str(out)]
    heed = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # tests that run in the background ignore it
    environment = os.environ | {"NO_COLOR": "1"}
    with subprocess.Popen(command, stderr=subprocess.PIPE, env=environment, preexec_fn=heed) as process:
        deadline = time.monotonic() + 120
        while not (log := out / "trials.jsonl").is_file() or len(read_log(log)) < 2:
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    assert process.returncode in (128 + number, -number)
    if number == signal.SIGINT:
        assert b"stopped and saved; continue with: megalabel tune" in err or b"Traceback" not in err
    recorded = read_log(out / "trials.jsonl")
    assert 2 <= len(recorded) < 4
    assert call(*arguments, "--out", out, "--resume")[0] == 0
    assert call(*arguments, "--out", tmp_path / "whole")[0] == 0

    def values(folder):
        return [(row["settings"], row["value"], row["end"]) for row in read_log(folder / "trials.jsonl")]

    assert values(out) == values(tmp_path / "whole")
    assert read_log(out / "trials.jsonl")[: len(recorded)] == recorded
    assert (out / "best.yaml").read_text() == (tmp_path / "whole" / "best.yaml").read_text()
