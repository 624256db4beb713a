"""A model folder: what it holds, other formats are refused, and a failed save leaves the old one."""

import hashlib
import json
import os
import random
import shutil
import stat
import subprocess
import sys
import time

import numpy as np
import pytest

import megalabel as ml
from megalabel.errors import DataError
from megalabel.model import store
from megalabel.model.store import load_head_tensors, read_labels
from megalabel.recipes import load_recipe


def with_format(folder, number):
    path = folder / "model.json"
    card = json.loads(path.read_bytes())
    del card["seal"]
    card["format"] = number
    seal = hashlib.sha256(json.dumps(card, sort_keys=True).encode()).hexdigest()
    path.write_text(json.dumps({**card, "seal": seal}))


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        *((number, "train it again, or use the release that saved it") for number in (1, 2, 3)),
        (5, "update megalabel"),
        ("x", "train it again, or use the release that saved it"),
    ],
)
def test_other_formats_are_refused(summed_run, tmp_path, number, remedy):
    shutil.copytree(summed_run / "model", tmp_path / "model")
    with_format(tmp_path / "model", number)
    with pytest.raises(DataError, match=f"this model has format {number}, not 4; {remedy}") as error:
        ml.Model.load(tmp_path / "model")
    assert "\n" not in str(error.value)
    with_format(tmp_path / "model", 4)
    ml.Model.load(tmp_path / "model")


def test_files_of_a_model_folder(model, tmp_path):
    model.save(tmp_path / "model")
    names = {path.relative_to(tmp_path / "model").parts[0] for path in (tmp_path / "model").rglob("*")}
    card = {"README.md", "about.json", "model.json"}
    assert names == card | {"encoders", "fitted", "heads.safetensors", "labels.jsonl.gz", "recipe.yaml", "train"}
    assert [path.name for path in (tmp_path / "model" / "encoders").iterdir()] == ["encoder"]
    tensors = load_head_tensors(tmp_path / "model")
    assert {name.split(".")[1] for name in tensors} == set(model.network.heads)
    assert tensors["heads.classifier.table"].shape == (60, 32)
    assert load_recipe(tmp_path / "model" / "recipe.yaml") == model.recipe


def test_labels_are_read_without_the_model(model, tmp_path):
    model.add_labels(["new"], ["n"])
    model.remove_labels([model.labels.uids[3]])
    model.save(tmp_path / "model")
    rows = read_labels(tmp_path / "model")
    assert [row["id"] for row in rows] == [0, 1, 2, *range(4, 61)]
    assert rows[-1] == {"id": 60, "uid": "n", "text": "new", "points": 0}
    assert [row["points"] for row in rows] == np.delete(model.stats.counts, 3).tolist()


@pytest.mark.parametrize(
    "name", ["heads.safetensors", "recipe.yaml", "labels.jsonl.gz", "encoders/encoder/bag.safetensors"]
)
def test_a_damaged_file_gives_one_line(summed_run, tmp_path, name):
    shutil.copytree(summed_run / "model", tmp_path / "model")
    path = tmp_path / "model" / name
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(DataError, match=f"{path.name}: this file changed after it was saved; copy the model again"):
        ml.Model.load(tmp_path / "model")
    path.unlink()
    with pytest.raises(DataError, match="this file cannot be read, no such file"):
        ml.Model.load(tmp_path / "model")


def test_a_failed_save_keeps_the_old_model(model, data, tmp_path, monkeypatch):
    model.save(tmp_path / "kept")
    model.add_labels(["new"])

    def fail(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store, "_write_labels", fail)
    with pytest.raises(ml.MegalabelError, match="nothing was changed"):
        model.save(tmp_path / "kept", overwrite=True)
    assert len(ml.Model.load(tmp_path / "kept").labels) == 60
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


SAVE = """
import sys
import megalabel as ml
model = ml.Model.load(sys.argv[1])
for number in range(10_000):
    model.add_labels(["new"])
    model.save(sys.argv[1], overwrite=True)
    print(number, flush=True)
"""


@pytest.fixture
def saving(summed_run, tmp_path):
    """Another process that saves a model again and again, each time with one more label."""
    folder = tmp_path / "place" / "model"
    shutil.copytree(summed_run / "model", folder)
    started = []

    def saving():
        started.append(subprocess.Popen([sys.executable, "-c", SAVE, folder], stdout=subprocess.PIPE))
        assert started[-1].stdout.readline() == b"0\n"
        return folder, started[-1]

    yield saving
    for process in started:
        process.kill()
        process.communicate()


def test_readers_never_see_half_of_a_save(saving):
    folder, process = saving()
    sizes, until = [], time.monotonic() + 60  # the writer may be slow on a busy machine
    while len(sizes) < 15 or (sizes[-1] == sizes[0] and time.monotonic() < until):
        model = ml.Model.load(folder)
        assert len(model.train_rows.texts) > 0
        sizes.append(len(model.labels))
        assert len(read_labels(folder)) >= sizes[-1]
    assert process.poll() is None
    assert sizes == sorted(sizes) and sizes[-1] > sizes[0]


def test_kills_leave_a_model_and_nothing_hidden(saving):
    draw = random.Random(0)
    for _ in range(3):
        folder, process = saving()
        time.sleep(draw.uniform(0, 0.1))
        process.kill()
        process.wait()
        assert len(ml.Model.load(folder).labels) > 60
        assert [path.name for path in folder.parent.iterdir()] == ["model"]


def test_a_kill_between_two_renames_leaves_a_model(summed_run, tmp_path):
    """As the two renames leave it that were once used everywhere, and still are where names cannot be exchanged."""
    shutil.copytree(summed_run / "model", tmp_path / "run" / ".model.0123456789ab.old")
    shutil.copytree(summed_run / "model", tmp_path / "run" / ".model.0123456789ab.part")
    assert len(ml.Model.load(tmp_path / "run").labels) == 60
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["model"]


def test_training_texts_are_those_of_the_version_that_was_loaded(summed_run, fused_run, data, tmp_path):
    shutil.copytree(summed_run / "model", tmp_path / "model")
    model = ml.Model.load(tmp_path / "model")
    other = ml.Model.load(fused_run)
    other.save(tmp_path / "model", overwrite=True, texts=False)
    assert list(model.train_rows.texts) == list(data.train.texts)


def test_files_have_the_rights_of_the_umask(model, tmp_path):
    before = os.umask(0o022)
    try:
        model.save(tmp_path / "model")
    finally:
        os.umask(before)
    paths = [path for path in (tmp_path / "model").rglob("*") if path.is_file()]
    assert {stat.S_IMODE(path.stat().st_mode) for path in paths} == {0o644}
