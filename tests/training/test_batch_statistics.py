"""Running statistics of an encoder are part of a run: checkpointed, resumed, saved, and refused by several ranks."""

import pytest
import torch

from megalabel import Model, load, train
from megalabel.errors import SettingError
from megalabel.ranks import Ranks
from megalabel.recipes import load_recipe
from megalabel.recipes.build import build_encoders, build_network
from megalabel.training.loop import Loop
from megalabel.training.phase import Texts

SMALL = [
    "encoder.source=null",
    "encoder.options={token_dim: 64, words: 256, filters: 3, dropout: 0.2, token_dropout: 0.2}",
    "batching.batch_size=32",
    "training.epochs=3",
    "training.chunk_size=20",
]


@pytest.fixture(scope="module")
def data():
    return load("synthetic:points=150,labels=16")


def state(model):
    return {name: value.clone() for name, value in model.network.state_dict().items()}


@pytest.fixture(scope="module")
def whole(data):
    return train("inceptionxml", data, changes=SMALL)


@pytest.mark.parametrize("step", [1, 6])  # within an epoch; the state after its step is checkpointed
def test_resume_is_exact(data, whole, tmp_path, stopped_after, step):
    stopped_after(step, lambda: train("inceptionxml", data, tmp_path / "run", changes=SMALL))
    again, expected = state(train("inceptionxml", data, tmp_path / "run", changes=SMALL, resume=True)), state(whole)
    assert any(name.endswith("norms.0.variance") for name in expected)
    assert again.keys() == expected.keys()
    assert all(torch.equal(again[name], expected[name]) for name in expected)


def test_a_saved_model_keeps_them(data, whole, tmp_path):
    whole.save(tmp_path / "model")
    again = Model.load(tmp_path / "model")
    assert all(torch.equal(value, state(again)[name]) for name, value in state(whole).items())
    before, after = (model.search(data.test.texts, 5) for model in (whole, again))
    assert (before.ids == after.ids).all() and (before.scores == after.scores).all()


def test_a_frozen_encoder_keeps_them(data, tmp_path):
    changes = [change.replace("0.2", "0") for change in SMALL]
    first = train("inceptionxml", data, tmp_path / "run", changes=changes)
    second = train("inceptionxml", data, changes=[*changes, f"init_from={tmp_path / 'run'}", "freeze=[encoder]"])
    kept = {name: value for name, value in state(second).items() if name.startswith("encoders.")}
    assert kept and all(torch.equal(value, state(first)[name]) for name, value in kept.items())


def test_several_ranks_are_refused(data):
    recipe = load_recipe("inceptionxml", SMALL)
    encoders = build_encoders(recipe, data)
    texts = Texts.of(data, encoders)
    network = build_network(recipe, encoders, len(data.labels), Ranks(rank=0, world=2))
    with pytest.raises(SettingError, match=r"encoders\.encoder: several ranks do not share the statistics") as error:
        Loop(recipe, network, data.train, texts.train, texts.labels)
    assert "\n" not in str(error.value)
