"""Whole runs, small: learn, save, load, resume after kill -9 with identical weights."""

import os
import random
import signal
import subprocess
import sys
import time

import pytest
import torch
from safetensors.torch import load_file

import megalabel as ml
from megalabel.errors import DataError, MegalabelError, WriteError

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
    changes = [*SMALL, "batching.labels=all", "batching.negatives={mined: 0}", "batching.order=shuffled"]
    model = ml.train("unidec-cpu", data, changes=[*changes, "training.refit=true"])
    assert model.evaluate(data).metrics["P@1"] > 60


def test_mistakes(data, tmp_path):
    with pytest.raises(DataError, match="batch_size"):
        ml.train("unidec-cpu", data, changes=[*SMALL, "batching.batch_size=100000"])
    with pytest.raises(DataError, match="no run here"):
        ml.train("unidec-cpu", data, tmp_path / "none", resume=True, changes=SMALL)
    ml.train("unidec-cpu", data, tmp_path / "run", changes=[*SMALL, "training.epochs=1"])
    with pytest.raises(WriteError, match="--resume"):
        ml.train("unidec-cpu", data, tmp_path / "run", changes=SMALL)
    model = ml.Model.load(tmp_path / "run")
    with pytest.raises(MegalabelError, match="list of texts"):
        model.predict("one text")
    with pytest.raises(MegalabelError, match="classifier"):
        model.predict(["a"], heads="clasifier")
    with pytest.raises(DataError, match="labels"):
        model.evaluate(ml.load("synthetic:points=100,labels=10"))


SCRIPT = """
import sys, megalabel as ml
ml.train("unidec-cpu", ml.load(sys.argv[1]), sys.argv[2], changes=sys.argv[4:], resume=sys.argv[3] == "resume")
"""


def start(folder, *, resume):
    command = [sys.executable, "-c", SCRIPT, DATA, str(folder), "resume" if resume else "new", *SMALL]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=os.environ)


def weights(folder):
    return load_file(folder / "model" / "heads.safetensors") | load_file(
        folder / "model" / "encoder" / "bag.safetensors"
    )


@pytest.mark.parametrize("kills", [3, pytest.param(20, marks=pytest.mark.slow)])
def test_kill_9_and_resume_give_the_same_weights(kills, tmp_path):
    begin = time.monotonic()
    assert start(tmp_path / "whole", resume=False).wait() == 0
    seconds = time.monotonic() - begin
    chance = random.Random(kills)
    for _ in range(kills):
        process = start(tmp_path / "killed", resume=(tmp_path / "killed" / "recipe.yaml").is_file())
        try:
            process.wait(timeout=chance.uniform(0.5, 1.0) * seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
    last = start(tmp_path / "killed", resume=(tmp_path / "killed" / "recipe.yaml").is_file())
    _, errors = last.communicate()
    assert last.returncode == 0, errors.decode()
    whole, killed = weights(tmp_path / "whole"), weights(tmp_path / "killed")
    assert whole.keys() == killed.keys()
    assert all(torch.equal(whole[name], killed[name]) for name in whole)
