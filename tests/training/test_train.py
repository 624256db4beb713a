"""Whole runs, small: learn, save, load, resume after kill -9 with identical weights."""

import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import megalabel as ml
from megalabel.errors import DataError, MegalabelError, WriteError
from megalabel.training.checkpoint import list_checkpoints, load_checkpoint
from megalabel.training.run_folder import identify

DATA = "synthetic:points=500,labels=60,seed=5"
SMALL = [
    "encoder.source=null",
    "encoder.options={dim: 32, words: 1024, bigrams: 0, characters: 0}",
    "batching.batch_size=64",
    "batching.refresh={start: 1, every: 2}",
    "training.epochs=4",
]


@pytest.fixture(scope="module")
def data():
    return ml.load(DATA)


@pytest.mark.parametrize("loss", ["decoupled_softmax", "softmax", "soft_top_k"])
def test_a_model_learns_and_survives_saving(data, loss, tmp_path):
    model = ml.train("unidec-cpu", data, tmp_path / "run", changes=[*SMALL, f"heads.dual.loss.kind={loss}"])
    assert model.evaluate(data).metrics["P@1"] > 60  # the most frequent label alone reaches far less
    again = ml.Model.load(tmp_path / "run")
    assert again.predict(data.test.texts[:5], k=3) == model.predict(data.test.texts[:5], k=3)
    for heads in ("dual", "classifier"):
        assert again.evaluate(data, heads=heads).metrics["P@1"] > 20


def test_all_labels_in_the_loss_and_refit(data):
    changes = [*SMALL, "batching.order=shuffled", "batching.labels=all"]
    model = ml.train("unidec-cpu", data, changes=[*changes, "training.refit=true"])
    assert model.evaluate(data).metrics["P@1"] > 60


def test_validation_rows_of_symmetric_sets_are_like_those_of_test(monkeypatch):
    """Train on items that are points and labels, most with one label, some with six; those of test have six."""
    held = []
    kept = lambda recipe, data: held.append(data) or identify(recipe, data)  # noqa: E731
    monkeypatch.setattr("megalabel.trainer.identify", kept)
    rows = [(f"item {i}", [(i + j) % 12 for j in range(1, 7 if i % 4 == 0 else 2)]) for i in range(90)]
    data = ml.Dataset.from_lists(rows, [("new item", list(range(6)))], [f"item {i}" for i in range(90)])
    for changes in ([], ["training.validation_like_test=false"]):
        ml.train("unidec-cpu", data, changes=[*SMALL, "training.epochs=1", *changes])
    matched, random_rows = (np.diff(each.val.targets.indptr).mean() for each in held)
    assert matched > 4 > random_rows


def test_mistakes(data, summed_run, tmp_path):
    with pytest.raises(DataError, match="batch_size"):
        ml.train("unidec-cpu", data, changes=[*SMALL, "batching.batch_size=100000"])
    with pytest.raises(DataError, match="no run here"):
        ml.train("unidec-cpu", data, tmp_path / "none", resume=True, changes=SMALL)
    with pytest.raises(WriteError, match="--resume"):
        ml.train("unidec-cpu", data, summed_run, changes=SMALL)
    model = ml.Model.load(summed_run)
    with pytest.raises(MegalabelError, match="list of texts"):
        model.predict("one text")
    with pytest.raises(MegalabelError, match="classifier"):
        model.predict(["a"], heads="clasifier")
    with pytest.raises(DataError, match="labels"):
        model.evaluate(ml.Dataset.from_lists([("a", [0])], [("a", [0])], ["none of its labels"]))


SCRIPT = """
import sys, megalabel as ml
ml.train("unidec-cpu", ml.load(sys.argv[1]), sys.argv[2], changes=sys.argv[4:], resume=sys.argv[3] == "resume")
"""


def start(folder, epochs):
    resume = "resume" if (folder / "recipe.yaml").is_file() else "new"
    command = [sys.executable, "-c", SCRIPT, DATA, str(folder), resume, *SMALL, f"training.epochs={epochs}"]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=os.environ)


def steps_done(folder):
    log = folder / "metrics.jsonl"
    return log.read_bytes().count(b"\n") if log.is_file() else 0


def kill_in_mid_run(folder, epochs, chance):
    """Kill a run some steps after it has begun to train; return False if it came to its end before that."""
    process = start(folder, epochs)
    # a resumed log is cut back to its checkpoint first: count from the least it has been
    least, more = steps_done(folder), chance.randint(2, 12)
    while process.poll() is None:
        now = steps_done(folder)
        least = min(least, now)
        if now - least >= more:
            time.sleep(chance.uniform(0, 0.05))  # also amid evaluation and saving
            process.send_signal(signal.SIGKILL)
            break
        time.sleep(0.002)
    _, errors = process.communicate()
    assert process.returncode in (0, -signal.SIGKILL), errors.decode()
    return process.returncode != 0


def weights(folder):
    model = folder / "model"
    return load_file(model / "heads.safetensors") | load_file(model / "encoders" / "encoder" / "bag.safetensors")


@pytest.mark.parametrize("kills", [3, pytest.param(20, marks=pytest.mark.slow)])
def test_kill_9_and_resume_give_the_same_weights(kills, tmp_path):
    epochs = 3 + 2 * kills
    assert start(tmp_path / "whole", epochs).wait() == 0
    chance, killed = random.Random(kills), tmp_path / "killed"
    for _ in range(kills):
        assert kill_in_mid_run(killed, epochs, chance), "the run was over before all kills"
        for folder in (killed / "checkpoints").glob("*"):
            assert not list_checkpoints(folder) or not load_checkpoint(folder).notes  # every one is whole
    last = start(killed, epochs)
    _, errors = last.communicate()
    assert last.returncode == 0, errors.decode()
    expected, actual = weights(tmp_path / "whole"), weights(killed)
    assert expected.keys() == actual.keys()
    assert all(torch.equal(expected[name], actual[name]) for name in expected)


def test_checkpoints_go_with_success(tmp_path):
    data = ml.load("synthetic:points=200,labels=30")
    model = ml.train("unidec-cpu", data, tmp_path / "run", changes=SMALL)
    assert not (tmp_path / "run" / "checkpoints").exists()
    lines = []
    again = ml.train("unidec-cpu", data, tmp_path / "run", changes=SMALL, resume=True, say=lines.append)
    assert lines == ["this run is complete"]
    assert again.evaluate(data).metrics == model.evaluate(data).metrics
    with pytest.raises(DataError, match="started with other data"):
        other = ml.load("synthetic:points=200,labels=30,seed=3")
        ml.train("unidec-cpu", other, tmp_path / "run", changes=SMALL, resume=True)
    ml.train("unidec-cpu", data, tmp_path / "kept", changes=SMALL, keep_checkpoints=True)
    assert list((tmp_path / "kept" / "checkpoints").glob("*"))
