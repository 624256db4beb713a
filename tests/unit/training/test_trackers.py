"""Curves in TensorBoard and W&B: what is written, that a resumed run continues them, that failures do not matter."""

import shutil

import pytest

import megalabel as ml
from megalabel.errors import MissingExtraError, SettingError
from megalabel.recipes.load_recipe import load_recipe
from megalabel.training.run_log import RunLog, read_log
from megalabel.training.trackers import Guarded, open_trackers, scalars

DATA = "synthetic:points=200,labels=20,seed=5"


def curves(folder):
    """Return the points (step, value) of each curve of a folder of event files, as TensorBoard shows them."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()
    points = {tag: [(each.step, each.value) for each in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
    return points, events


def logged(folder, phase):
    """Return the same from metrics.jsonl."""
    points = {}
    for record in read_log(folder / "metrics.jsonl"):
        if record["phase"] == phase:
            for name, value in scalars({key: value for key, value in record.items() if key != "step"}).items():
                points.setdefault(name, []).append((record["step"], pytest.approx(value, rel=1e-5)))
    return points


def test_event_files_hold_the_whole_log(small, tmp_path):
    ml.train("unidec-cpu", ml.load(DATA), tmp_path, changes=[*small, "training.refit=true"], log=["tensorboard"])
    for phase in ("select", "refit"):
        points, events = curves(tmp_path / "tensorboard" / phase)
        assert points == logged(tmp_path, phase)
        text = events.Tensors("recipe/text_summary")[0].tensor_proto.string_val[0].decode()
        assert "decoupled_softmax" in text and "lr:" in text
    select, _ = curves(tmp_path / "tensorboard" / "select")
    assert {"train/loss", "train/loss_dual", "train/rate_encoder", "train/rate_tables", "validation/P_at_1",
            "system/seconds", "system/memory_mb"} <= set(select)  # fmt: skip
    assert select["train/rate_encoder"][0][1] != select["train/rate_encoder"][-1][1]


def test_a_resumed_run_continues_the_curve(small, tmp_path, stopped_after):
    data, options = ml.load(DATA), {"changes": [*small, "training.epochs=4"], "log": ["tensorboard"]}
    stopped_after(4, lambda: ml.train("unidec-cpu", data, tmp_path / "run", **options))
    shutil.copytree(tmp_path / "run" / "checkpoints", tmp_path / "kept")
    stopped_after(2, lambda: ml.train("unidec-cpu", data, tmp_path / "run", resume=True, **options))
    shutil.rmtree(tmp_path / "run" / "checkpoints")  # as if the last steps had not reached a checkpoint
    shutil.move(tmp_path / "kept", tmp_path / "run" / "checkpoints")
    ml.train("unidec-cpu", data, tmp_path / "run", resume=True, **options)
    points, _ = curves(tmp_path / "run" / "tensorboard" / "select")
    assert points == logged(tmp_path / "run", "select")
    steps = [step for step, _ in points["train/loss"]]
    assert steps == list(range(1, len(steps) + 1))


class Failing:
    def __init__(self, method):
        self.calls, self.method = [], method

    def __getattr__(self, name):
        def call(*values, **more):
            self.calls.append(name)
            if name == self.method:
                raise RuntimeError("no space\nleft")

        return call


@pytest.mark.parametrize("method", ["begin", "write", "flush", "close"])
def test_a_failure_is_one_warning(method, tmp_path):
    said, tracker = [], Failing(method)
    guarded = Guarded("wandb", tracker, said.append)
    with RunLog(tmp_path / "metrics.jsonl", trackers=[guarded]) as log:
        log.rewind(0, phase="select")
        for step in (1, 2):
            log.write(step, phase="select", loss=0.5)
            log.flush()
    assert said == ["warning: --log wandb stopped (no space left); the training goes on without it"]
    assert tracker.calls.count(method) == 1
    assert [record["step"] for record in read_log(tmp_path / "metrics.jsonl")] == [1, 2]


def test_a_training_goes_on_without_its_tracker(small, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "tensorboard").write_text("in the way")
    said = []
    one = [*small, "training.epochs=1", "training.refit=false"]
    ml.train("unidec-cpu", ml.load(DATA), tmp_path / "run", changes=one, log=["tensorboard"], say=said.append)
    assert len([line for line in said if "warning: --log tensorboard stopped" in line]) == 1
    assert (tmp_path / "run" / "model" / "model.json").is_file()


def test_what_is_refused(tmp_path, monkeypatch):
    recipe = load_recipe("unidec-cpu")
    with pytest.raises(SettingError, match="did you mean 'tensorboard'"):
        open_trackers(["tensorbord"], tmp_path, recipe, print)
    monkeypatch.setattr("megalabel.training.trackers.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"needs the package wandb; pip install 'megalabel\[wandb\]'"):
        open_trackers(["wandb"], tmp_path, recipe, print)
    with pytest.raises(MissingExtraError, match="wandb"):
        ml.train(recipe, ml.load(DATA), tmp_path / "run", log=["wandb"])
    assert not (tmp_path / "run").exists()
