"""Averages of weights against a slow mean of all that were there."""

import json

import pytest
import torch

from megalabel import Model, load, train
from megalabel.errors import MegalabelError
from megalabel.plan import plan
from megalabel.recipes.load_recipe import make_recipe
from megalabel.recipes.training import AveragingSettings
from megalabel.training.averaging import WeightAverage
from megalabel.training.loop import Loop

RECIPE = {
    "name": "mine",
    "paper": "none",
    "about": "weights are averaged",
    "encoder": {"kind": "bag", "source": None, "options": {"dim": 8, "words": 256, "bigrams": 0, "characters": 0}},
    "heads": {"labels": {"kind": "free", "bias": True, "loss": "bce"}},
    "batching": {"labels": "all", "batch_size": 32},
    "training": {
        "epochs": 4,
        "encoder": {"kind": "adamw", "lr": 0.02},
        "averaging": {"start": 1, "every_steps": 2},
    },
}


@pytest.fixture(scope="module")
def data():
    return load("synthetic:points=200,labels=16")


def changed(**training):
    return make_recipe({**RECIPE, "training": {**RECIPE["training"], **training}})


@pytest.fixture
def history(monkeypatch):
    """Return the weights after every step, with the epoch of each."""
    steps = []
    plain = Loop._step

    def record(self, *arguments):
        result = plain(self, *arguments)
        steps.append((result.epoch, {n: p.detach().clone() for n, p in self.network.named_parameters()}))
        return result

    monkeypatch.setattr(Loop, "_step", record)
    return steps


def test_the_mean_of_all_weights_that_entered():
    torch.manual_seed(0)
    layer = torch.nn.Linear(3, 2)
    average, kept = WeightAverage(AveragingSettings(start=2, every_steps=3), layer), []
    for step in range(20):
        torch.nn.init.normal_(layer.weight)
        average.after_step(step // 4)
        if step >= 8 and (step - 7) % 3 == 0:
            kept.append(layer.weight.detach().double().clone())
    before = layer.weight.detach().clone()
    with average.applied():
        torch.testing.assert_close(layer.weight.detach().double(), torch.stack(kept).mean(dim=0), rtol=1e-6, atol=1e-7)
    assert torch.equal(layer.weight, before)
    assert average.count == len(kept) == 4


@pytest.mark.parametrize("refit", [False, True])
def test_a_model_has_the_mean_weights(data, tmp_path, history, refit):
    model = train(changed(refit=refit, evaluate_every=4), data, tmp_path / "run")
    last = history[-(len(history) // 2) :] if refit else history  # the second training is as long as the first
    late = [weights for epoch, weights in last if epoch >= 1]
    entered = late[1::2]
    for saved in (model, Model.load(tmp_path / "run")):
        for name, value in saved.network.named_parameters():
            mean = torch.stack([weights[name].double() for weights in entered]).mean(dim=0)
            torch.testing.assert_close(value.detach().double(), mean, rtol=1e-5, atol=1e-6)


def test_the_mean_is_what_is_evaluated(data, tmp_path):
    model = train(changed(evaluate_every=4), data, tmp_path / "run")
    lines = map(json.loads, (tmp_path / "run" / "metrics.jsonl").read_text().splitlines())
    *_, last = (line["val"] for line in lines if "val" in line)
    assert last["nDCG@5"] == pytest.approx(model.evaluate(_validation(data)).metrics["nDCG@5"])


def _validation(data):
    from megalabel.data.hold_out import hold_out

    return hold_out(data, share=0.1, seed=0).val


@pytest.mark.parametrize("step", [3, 9, 14, 19])
def test_resuming_is_exact(data, tmp_path, stopped_after, step):
    whole = train(changed(), data, tmp_path / "whole")
    stopped_after(step, lambda: train(changed(), data, tmp_path / "run"))
    again = train(changed(), data, tmp_path / "run", resume=True)
    for (name, value), (_, other) in zip(
        whole.network.named_parameters(), again.network.named_parameters(), strict=True
    ):
        assert torch.equal(value, other), name


def test_an_average_that_never_starts_is_refused():
    with pytest.raises(MegalabelError, match="averaging has no effect"):
        changed(epochs=1)


def test_the_plan_counts_one_more_copy():
    parts = [
        {part.name: part.bytes for _, part in plan(recipe, points=1000, labels=5000).parts}
        for recipe in (changed(), changed(averaging=None))
    ]
    assert parts[0]["average of the weights"] >= 5000 * 8 * 4 and "average of the weights" not in parts[1]
