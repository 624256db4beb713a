"""Training without validation rows, with few of them, and for a number of steps."""

import numpy as np
import pytest

import megalabel as ml
from megalabel.data.hold_out import hold_out
from megalabel.errors import SettingError
from megalabel.fusion import Fusion
from megalabel.recipes import load_recipe
from megalabel.training.run_log import read_log


@pytest.fixture(scope="module")
def data(served_data):
    return ml.load(served_data)


@pytest.fixture(scope="module")
def whole(data, fused, tmp_path_factory):
    """A run of `auto` on all train rows, and what it said."""
    folder, lines = tmp_path_factory.mktemp("whole") / "run", []
    return ml.train("auto", data, folder, changes=[*fused, "training.validation=0"], say=lines.append), folder, lines


def test_all_rows_are_trained_on_once(whole, data):
    model, folder, lines = whole
    assert lines[0] == f"{len(data.train):,} train, no validation texts (the last epoch is kept), 60 labels"
    assert [line for line in lines if "train + validation" in line or "best" in line] == []
    log = read_log(folder / "metrics.jsonl")
    assert {record["phase"] for record in log} == {"select"} and not any("val" in record for record in log)
    assert sum(record["texts"] for record in log if record["epoch"] == 0) == len(data.train)
    assert model.stats.points == len(data.train)


def test_without_validation_rows_all_heads_count_alike(whole, data):
    model, folder, lines = whole
    assert any(
        line.endswith("no validation texts, so their scores count alike and are not calibrated") for line in lines
    )
    assert isinstance(model.fusion, Fusion) and model.fusion.calibration is None
    assert list(model.fusion.shares().values()) == pytest.approx([1 / len(model.heads)] * len(model.heads))
    metrics = {heads: model.evaluate(data, heads=heads).metrics["nDCG@5"] for heads in ("all", *model.heads)}
    assert metrics["all"] > np.median([metrics[head] for head in model.heads])
    why = model.explain(data.test.texts[0])
    assert why.probability is None and why.rest == 0
    again = ml.Model.load(folder)
    assert again.fusion == model.fusion
    assert np.array_equal(again.search(data.test.texts, 5).ids, model.search(data.test.texts, 5).ids)


@pytest.mark.parametrize(
    ("recipe", "changes", "said"),
    [
        ("unidec-cpu", ["predict.weights=validation"], "(no validation texts to choose them on)"),
        ("unidec-cpu", ["predict={weights: tree, candidates: 20}"], "not calibrated"),
        ("unidec-cpu", ["training.refit=true", "training.patience=1"], "no validation texts"),
    ],
)
def test_every_way_to_put_heads_together_does_without(data, small, recipe, changes, said):
    lines = []
    model = ml.train(recipe, data, changes=[*small, *changes, "training.validation=0"], say=lines.append)
    assert any(said in line for line in lines)
    assert model.evaluate(data).metrics["P@1"] > 10


def test_own_validation_rows_are_used_all_the_same(data, small):
    own, lines = hold_out(data, share=0.1), []
    ml.train("unidec-cpu", own, changes=[*small, "training.validation=0"], say=lines.append)
    assert f"{len(own.val)} validation texts" in lines[0]


def test_few_validation_rows_give_no_calibration(fused):
    few, lines = ml.load("synthetic:points=120,labels=12,seed=2"), []
    model = ml.train("auto", few, changes=[*fused, "training.refit=false", "batching.batch_size=16"], say=lines.append)
    assert any(line.endswith("too few to calibrate scores, which takes 30") for line in lines)
    assert model.fusion.calibration is None
    top = model.search(few.test.texts, 3)
    assert ((top.scores > 0) & (top.scores < 1)).all()


def test_shares_outside_zero_to_one_are_refused():
    for share in ("-0.1", "1"):
        with pytest.raises(SettingError, match=r"training\.validation"):
            load_recipe("auto", [f"training.validation={share}"])


@pytest.mark.parametrize("steps", [1, 7, 8, 11, 1000])
def test_steps_end_a_training_wherever_in_an_epoch(data, small, tmp_path, steps):
    """An epoch has 7 steps; what they end in is evaluated, and a rate that falls to 0 does so at the last of them."""
    changes = [*small, "training.epochs=3", f"training.max_steps={steps}", "training.evaluate_every=3"]
    lines = []
    ml.train("unidec-cpu", data, tmp_path / "run", changes=changes, say=lines.append)
    log = read_log(tmp_path / "run" / "metrics.jsonl")
    losses = [record["step"] for record in log if "loss" in record]
    per_epoch = sum(record["epoch"] == 0 for record in log if "loss" in record)
    assert losses == [*range(1, min(steps, 3 * per_epoch) + 1)]
    assert [record["step"] for record in log if "val" in record] == [losses[-1]]
    epochs = -(-losses[-1] // per_epoch)
    assert any(f"after {epochs} of {epochs} epoch" in line for line in lines)


@pytest.mark.parametrize("stop", [3, 9, 10])
def test_a_run_with_max_steps_resumes_bit_for_bit(data, small, tmp_path, stopped_after, stop):
    changes = [*small, "training.max_steps=10", "training.refit=true"]

    def train(folder, **options):
        return ml.train("unidec-cpu", data, tmp_path / folder, changes=changes, **options)

    def weights(model):
        return {name: value.numpy() for name, value in model.network.state_dict().items()}

    whole = weights(train("whole"))
    stopped_after(stop, lambda: train("cut"))
    again = weights(train("cut", resume=True))
    assert all(np.array_equal(again[name], value) for name, value in whole.items())
    one, two = (read_log(tmp_path / folder / "metrics.jsonl") for folder in ("whole", "cut"))
    for record, other in zip(one, two, strict=True):
        assert {**record, "seconds": 0, "memory_mb": 0} == {**other, "seconds": 0, "memory_mb": 0}
