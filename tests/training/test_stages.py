"""Runs in stages: each passes its encoder on, and a killed run resumes in its stage."""

import json
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
from megalabel.encoders import load_encoder
from megalabel.errors import SettingError
from megalabel.recipes import load_recipe
from megalabel.recipes.load_recipe import dump_recipe

DATA = "synthetic:points=500,labels=60,seed=5"
SMALL = [
    "encoder.source=null",
    "encoder.options={dim: 32, words: 1024, bigrams: 0, characters: 0, residual: false}",
    "batching.batch_size=64",
    "batching.negatives={mined: 10, top: 20, uniform: 5}",
    "spaces.clusters.size=8",
]
SCRIPT = """
import sys, megalabel as ml
ml.train(sys.argv[1], ml.load(sys.argv[2]), sys.argv[3], resume=sys.argv[4] == "resume")
"""


@pytest.fixture
def recipe(tmp_path, request):
    """A file with a small Astec of 8 clusters."""
    refit = bool(getattr(request, "param", False))
    path = tmp_path / "small.yaml"
    path.write_text(dump_recipe(load_recipe("astec-cpu", [*SMALL, f"training.refit={str(refit).lower()}"])))
    return path


def phases(folder):
    log = folder / "metrics.jsonl"
    if not log.is_file():
        return []
    whole = [line for line in log.read_text().split("\n")[:-1] if line]
    return [json.loads(line).get("phase") for line in whole]


def start(recipe, folder):
    how = "resume" if (folder / "recipe.yaml").is_file() else "new"
    command = [sys.executable, "-c", SCRIPT, str(recipe), DATA, str(folder), how]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=os.environ)


def kill_in(recipe, folder, phase, chance):
    """Kill a run after some steps in a phase."""
    process, more = start(recipe, folder), chance.randint(2, 8)
    while process.poll() is None:
        if phases(folder).count(phase) >= more:
            time.sleep(chance.uniform(0, 0.03))
            process.send_signal(signal.SIGKILL)
            break
        time.sleep(0.002)
    _, errors = process.communicate()
    assert process.returncode == -signal.SIGKILL, errors.decode()


def weights(folder):
    heads = load_file(folder / "model" / "heads.safetensors")
    return heads | load_file(folder / "model" / "encoders" / "encoder" / "bag.safetensors")


@pytest.mark.parametrize("recipe", [False, pytest.param(True, marks=pytest.mark.slow)], indirect=True)
def test_kill_9_in_any_stage_and_resume_give_the_same_weights(recipe, tmp_path):
    assert start(recipe, tmp_path / "whole").wait() == 0
    killed, chance = tmp_path / "killed", random.Random(1)
    order = list(dict.fromkeys(phases(tmp_path / "whole")))
    assert (
        order == ["select-surrogate", "select-extreme", "refit-surrogate", "refit-extreme"][: len(order)]
        and len(order) > 1
    )
    for phase in order:
        kill_in(recipe, killed, phase, chance)
    last = start(recipe, killed)
    _, errors = last.communicate()
    assert last.returncode == 0, errors.decode()
    expected, actual = weights(tmp_path / "whole"), weights(killed)
    assert expected.keys() == actual.keys()
    assert all(torch.equal(expected[name], actual[name]) for name in expected)


def test_the_frozen_encoder_is_that_of_the_stage(recipe, tmp_path):
    data = ml.load(DATA)
    model = ml.train(str(recipe), data, tmp_path / "run", keep_checkpoints=True)
    assert model.evaluate(data).metrics["P@1"] > 60
    left = load_encoder(tmp_path / "run" / "stages" / "select-surrogate" / "encoders" / "encoder")
    assert torch.equal(left.table, model.network.encoder.table)
    again = ml.Model.load(tmp_path / "run")
    assert again.predict(data.test.texts[:5], k=3) == model.predict(data.test.texts[:5], k=3)


def test_gandalf_rows_reach_every_stage(recipe, tmp_path):
    data = ml.load(DATA)
    said = []
    made = load_recipe(recipe, ["augment=gandalf", "training.epochs=2"])
    ml.train(made, data, say=said.append)
    assert any("gandalf" in line for line in said)
    assert "stage surrogate: label space clusters groups 60 labels into 8" in said


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("stages=[{name: a}, {name: a}]", "different names"),
        ("stages=[{name: a, training: {epocs: 3}}]", "stage a: unknown key 'training.epocs'; did you mean 'epochs'?"),
        ("stages=[{name: a, encoder: {source: null}}]", "unknown key 'stages.0.encoder'"),
        ("stages=[{name: a, trainig: {}}]", "did you mean 'training'"),
        ("stages=[{name: a b}]", "stages.0.name"),
        ("stages=[{name: a, clusters: 2}]", "'clusters' is now called 'space'"),
        ("stages=[{name: a, changes: {}}]", "'changes' is now called 'heads, batching, training'"),
        ("stages=[{name: a, space: cluster}]", "stage a: space is 'cluster'; did you mean 'clusters'?"),
        ("stages=[{name: a, heads: [clasifier]}]", "stage a: there is no head 'clasifier'; did you mean 'classifier'?"),
        ("stages=[{name: a, freeze: [encodr]}]", "stage a: freeze is 'encodr'; did you mean 'encoder'?"),
        (
            "stages=[{name: a, drop: [clasifier]}, {name: b}]",
            "stage a: drop is 'clasifier'; did you mean 'classifier'?",
        ),
        ("stages=[{name: a, drop: [classifier]}]", "stage a: drop has no effect, no stage comes after it"),
        ("heads.classifier.loss=null", "loss is null"),
    ],
)
def test_wrong_stages_give_one_line(change, words):
    with pytest.raises(SettingError) as error:
        load_recipe("astec-cpu", [change])
    assert words in str(error.value)
    assert "\n" not in str(error.value)
