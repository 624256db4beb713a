"""Every loss a recipe can name trains on rows with soft targets, as Gandalf makes them."""

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import megalabel as ml
from megalabel.losses.settings import LOSSES, build_loss
from megalabel.recipes import load_recipe
from megalabel.training.augment_train import augment_train

SMALL = [
    "encoder.source=null",
    "encoder.options={dim: 16, words: 512, bigrams: 0, characters: 0}",
    "batching.batch_size=32",
    "batching.refresh={start: 1, every: 2}",
    "training.epochs=2",
    "augment=gandalf",
    "augment.delta=0.05",
]


@pytest.fixture(scope="module")
def data():
    return ml.load("synthetic:points=200,labels=40,seed=5")


def test_the_data_has_soft_targets(data):
    values = augment_train(load_recipe("unidec-cpu", SMALL), data).train.targets.data
    assert ((values > 0) & (values < 1)).mean() > 0.1


@pytest.mark.parametrize("kind", LOSSES)
def test_every_loss_trains_on_them(data, kind):
    said = []
    changes = [*SMALL, f"heads.dual.loss.kind={kind}", f"heads.classifier.loss.kind={kind}"]
    model = ml.train("unidec-cpu", data, changes=changes, say=said.append)
    assert any(line.startswith("gandalf: 144 train texts become 184") for line in said)
    assert model.evaluate(data).metrics["P@1"] > 10  # chance is 2.5


@pytest.mark.parametrize("kind", LOSSES)
@pytest.mark.parametrize("symmetric", [None, 0.5])
def test_the_value_of_a_target_matters(kind, symmetric):
    few = {"soft_top_k": {"k": 1}, "truncated_softmax": {"scale": 1.5}}.get(kind, {})  # of four labels
    loss = build_loss({"kind": kind, "symmetric": symmetric, **few})
    scores = torch.tensor([[0.3, -0.2, 0.1, 0.0], [0.1, 0.4, -0.3, 0.2]], dtype=torch.float64, requires_grad=True)
    hard = torch.tensor([[1.0, 1.0, 0, 0], [0, 1, 0, 1]], dtype=torch.float64)
    soft = torch.tensor([[1.0, 0.2, 0, 0], [0, 1, 0, 0.7]], dtype=torch.float64)
    gradients = [torch.autograd.grad(loss(scores, targets), scores)[0] for targets in (hard, soft)]
    assert torch.isfinite(gradients[1]).all()
    assert not torch.allclose(*gradients)


@pytest.mark.parametrize(
    "augment", ["mixup", "label_mixup", "{rows_kept: labels}", "{below_delta: mask, delta: 0.2}", "{rows: train}"]
)
def test_every_augmentation_trains(data, augment):
    model = ml.train("unidec-cpu", data, changes=[*SMALL[:-2], f"augment={augment}", "training.refit=true"])
    assert model.evaluate(data).metrics["P@1"] > 5


def test_soft_positives_are_never_mined(data, monkeypatch):
    from megalabel.training import loop

    actual = []
    refresh = loop.refresh

    def watch(network, settings, split, *args, **kwargs):
        done = refresh(network, settings, split, *args, **kwargs)
        actual.append((split, done.mined))
        return done

    monkeypatch.setattr(loop, "refresh", watch)
    ml.train("unidec-cpu", data, changes=[*SMALL, "augment.below_delta=mask", "augment.delta=0.2"])
    (split, mined), *_ = actual
    rows = np.repeat(np.arange(len(split)), mined.shape[1])[mined.ravel() >= 0]
    labels = mined.ravel()[mined.ravel() >= 0]
    assert len(rows)
    assert len(split.filter)
    assert not split.targets[rows, labels].any()
    assert not split.excluded()[rows, labels].any()


def test_a_run_resumes_with_the_same_rows_and_weights(data, tmp_path):
    changes = [*SMALL, "training.refit=true"]
    whole = ml.train("unidec-cpu", data, tmp_path / "run", changes=changes)
    again = ml.train("unidec-cpu", data, tmp_path / "run", changes=changes, resume=True)
    assert whole.predict(data.test.texts[:5]) == again.predict(data.test.texts[:5])
    ml.train("unidec-cpu", data, tmp_path / "second", changes=changes)
    first, second = (load_file(tmp_path / name / "model" / "heads.safetensors") for name in ("run", "second"))
    assert all(torch.equal(first[name], second[name]) for name in first)
    with pytest.raises(ml.MegalabelError, match="another recipe"):
        ml.train("unidec-cpu", data, tmp_path / "run", changes=[*changes, "augment.delta=0.2"], resume=True)
