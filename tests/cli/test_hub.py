"""Uploading to a stand-in for the hub and using what is there, as a user types it; and what is refused."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "model"))
from hub_server import WRITER, running

sys.path.pop(0)


@pytest.mark.extra  # new processes, because huggingface_hub reads its environment once
def test_export_predict_import(call, trained, tmp_path):
    with running() as hub:
        more = {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "hf"), "HF_HUB_DISABLE_XET": "1", "HF_TOKEN": WRITER}
        kept = {name: value for name, value in os.environ.items() if "OFFLINE" not in name}

        def run(*arguments, **variables):
            done = subprocess.run(
                [sys.executable, "-m", "megalabel", *map(str, arguments)],
                cwd=tmp_path, env=kept | more | variables, capture_output=True, text=True, check=False,
            )  # fmt: skip
            assert WRITER not in done.stdout + done.stderr and "Traceback" not in done.stderr, done.stderr
            return done.returncode, done.stdout, done.stderr

        code, out, err = run("export", trained, "--to", "hub", "--repo", "me/tickets", "--private")
        assert (code, out) == (0, "") and f"{hub.url}/me/tickets/commit/" in err, err
        code, out, err = run("predict", "hf://me/tickets", "--text", "some text", "--json")
        assert code == 0 and out == call("predict", trained, "--text", "some text", "--json")[1], err
        code, out, err = run("import", "hub", "me/tickets", "--out", "mine")
        assert (code, out) == (0, "") and "mine: 40 labels" in err and (tmp_path / "mine" / "README.md").is_file()
        code, _, err = run("export", trained, "--to", "hub", "--repo", "me/tickets", HF_TOKEN="hf_wrong")
        assert code == 2 and err.count("\n") == 1 and "the hub does not accept the token" in err
        assert not [path for path in tmp_path.rglob("*") if path.is_file() and WRITER.encode() in path.read_bytes()]


def refused(call, *arguments):
    code, out, err = call(*arguments)
    assert (code, out) == (2, "") and err.count("\n") == 1, err
    return err


def test_what_is_refused(call, trained, tmp_path):
    assert "give --repo OWNER/NAME" in refused(call, "export", trained, "--to", "hub")
    assert "uploads the whole model" in refused(
        call, "export", trained, "--to", "hub", "--repo", "me/a", "--out", tmp_path / "out"
    )
    assert "is not the name of a" in refused(call, "export", trained, "--to", "hub", "--repo", "a/b/c")
    assert "give --out DIR" in refused(call, "export", trained, "--to", "onnx")
    assert "are for --to hub" in refused(call, "export", trained, "--to", "onnx", "--out", tmp_path / "o", "--private")
    assert "'hf:/tickets' is not the name" in refused(call, "predict", "hf://tickets", "--text", "a")
    for command in (("labels", "add", "hf://me/a", "--text", "new"), ("index", "hf://me/a", "--kind", "exact")):
        assert "hf://me/a: a model on the hub cannot be changed" in refused(call, *command)
    assert "is not the name" in refused(call, "import", "hub", "tickets", "--out", tmp_path / "out")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    assert "--overwrite" in refused(call, "import", "hub", "me/a", "--out", tmp_path / "full")


def test_logs_of_train(call, tmp_path, monkeypatch):
    data = ["train", "unidec-cpu", "--data", "synthetic:points=90,labels=9", "--out", tmp_path / "run"]
    assert "there is no log 'tensorbord'; did you mean 'tensorboard'" in refused(call, *data, "--log", "tensorbord")
    monkeypatch.setattr("megalabel.training.trackers.find_spec", lambda name: None)
    assert "pip install 'megalabel[wandb]'" in refused(call, *data, "--log", "wandb")
    assert not (tmp_path / "run").exists()
