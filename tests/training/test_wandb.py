"""A run logged to W&B in its offline mode; tests/packaging/test_stacks.py runs this file where wandb is installed."""

import json
import os
import re
import struct
import subprocess
import sys

import pytest

pytest.importorskip("wandb", reason="wandb is not installed here")

import wandb
from wandb.proto import wandb_internal_pb2

import megalabel as ml
from megalabel.training.run_log import read_log
from megalabel.training.trackers import scalars

DATA = "synthetic:points=200,labels=20,seed=5"


@pytest.fixture(autouse=True)
def offline(monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")


def records(path):
    """Return the records of a file that W&B would send: a log of LevelDB behind a header of 7 bytes."""
    data, place, parts, found = path.read_bytes(), 7, [], []
    while place + 7 <= len(data):
        if (left := 32768 - place % 32768) < 7:
            place += left  # the rest of a block too short for another header
            continue
        size, kind = struct.unpack("<HB", data[place + 4 : place + 7])
        parts.append(data[place + 7 : place + 7 + size])
        place += 7 + size
        if kind in (1, 4):  # a whole record, or its last part
            found.append(wandb_internal_pb2.Record())
            found[-1].ParseFromString(b"".join(parts))
            parts = []
    return found


def history(path):
    """Return the points {name: value} in order, without what W&B adds itself."""
    rows = [record.history.item for record in records(path) if record.WhichOneof("record_type") == "history"]
    pairs = [{"/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in row} for row in rows]
    return [{name: value for name, value in row.items() if not name.startswith("_")} for row in pairs]


def config(path):
    (run,) = [record.run for record in records(path) if record.WhichOneof("record_type") == "run"][:1]
    return run, {item.key: json.loads(item.value_json) for item in run.config.update}


def expected(folder):
    rows = []
    for record in read_log(folder / "metrics.jsonl"):
        phase, step = record.pop("phase"), record.pop("step")
        rows.append(
            {f"{phase}/{name}": pytest.approx(value) for name, value in {**scalars(record), "step": step}.items()}
        )
    return rows


def test_the_whole_log_and_the_recipe(small, tmp_path, capsys):
    ml.train("unidec-cpu", ml.load(DATA), tmp_path / "run", changes=[*small, "training.refit=true"], log=["wandb"])
    assert wandb.run is None  # it is finished
    (path,) = (tmp_path / "run" / "wandb").glob("offline-run-*/*.wandb")
    assert history(path) == expected(tmp_path / "run")
    run, settings = config(path)
    assert (run.display_name, run.project) == ("run", "megalabel")
    assert settings["batching"]["batch_size"] == 64 and settings["heads"]["dual"]["loss"]["kind"] == "decoupled_softmax"
    assert capsys.readouterr().out == ""


def test_a_resumed_run_has_the_same_id(small, tmp_path, stopped_after):
    data, options = ml.load(DATA), {"changes": [*small, "training.epochs=4"], "log": ["wandb"]}
    stopped_after(4, lambda: ml.train("unidec-cpu", data, tmp_path / "run", **options))
    ml.train("unidec-cpu", data, tmp_path / "run", resume=True, **options)
    paths = sorted((tmp_path / "run" / "wandb").glob("offline-run-*/*.wandb"), key=lambda path: path.stat().st_mtime_ns)
    assert len(paths) == 2 and len({config(path)[0].run_id for path in paths}) == 1
    assert re.fullmatch(r"[0-9a-f]{12}\n", (tmp_path / "run" / "wandb" / "id.txt").read_text())
    assert [row for path in paths for row in history(path)] == expected(tmp_path / "run")


def test_without_a_login_the_training_goes_on(small, tmp_path):
    """In a process of its own, because W&B reads its environment once."""
    online = {"WANDB_MODE": "online", "WANDB_BASE_URL": "http://127.0.0.1:9", "HOME": str(tmp_path)}
    kept = {name: value for name, value in os.environ.items() if not name.startswith("WANDB")}
    changes = [part for change in [*small, "training.epochs=1"] for part in ("--set", change)]
    done = subprocess.run(
        [sys.executable, "-m", "megalabel", "train", "unidec-cpu", "--data", DATA, "--out", tmp_path / "run",
         "--log", "wandb", "--no-report", *changes],
        env=kept | online, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0 and done.stdout == "", done.stderr
    assert done.stderr.count("warning: --log wandb stopped") == 1, done.stderr
    assert (tmp_path / "run" / "model" / "model.json").is_file()
