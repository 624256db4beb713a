"""Kinds of heads defined outside the package: trained or fitted, saved, loaded, given a new label, planned."""

from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pytest
import torch
from torch import nn

from megalabel import load, train
from megalabel.cost import tensor
from megalabel.errors import SettingError
from megalabel.heads import HEADS, DenseHead, DenseSettings, FittedHead, FittedSettings, register
from megalabel.heads.cost import HeadCost
from megalabel.heads.live import GivenAnswers
from megalabel.model import Model
from megalabel.plan import plan
from megalabel.recipes import load_recipe


class ScaledSettings(DenseSettings):
    """The label's text times a learnt number per label."""

    reads_text: ClassVar[bool] = True
    noise_keys: ClassVar[tuple[str, ...]] = (*DenseSettings.noise_keys, "noise")
    text_only: ClassVar[bool] = False
    has_weights: ClassVar[bool] = True
    kind: Literal["scaled"] = "scaled"
    scale: float = 1.0
    noise: float = 0.0  # of the scales, in training

    def build(self, **arguments: Any) -> "ScaledHead":
        return ScaledHead(self, **arguments)


class ScaledHead(DenseHead):
    def __init__(self, settings, **arguments):
        super().__init__(settings, **arguments)
        self.scales = nn.Parameter(torch.full((len(self.shard), 1), settings.scale))

    def label_rows(self, pool, projected):
        scales = self.scales if pool is None else self.scales.index_select(0, pool)
        if self.training and self.settings.noise:
            scales = scales + self.settings.noise * torch.randn_like(scales)
        return projected * scales

    def new_vectors(self, new):
        texts = self.projection(new.encoded(self))
        scales = torch.ones(len(new.texts), 1) if new.added else self.scales[torch.from_numpy(new.ids)]
        return texts * scales, {"scales": scales}

    def row_parameters(self):
        return {"scales": "scales", **super().row_parameters()}


class CentroidSettings(FittedSettings):
    """The mean of a label's train points, by the query vectors of a dense head."""

    feature_keys: ClassVar[tuple[str, ...]] = ("features",)
    kind: Literal["centroid"] = "centroid"
    features: str

    def cost(self, workload):
        dim = workload.head_dim(self.features)
        return HeadCost(held=(tensor("centroids", workload.labels, dim, host=True),))

    def fit(self, data):
        train = data.data.train
        sums = train.targets.T @ data.features(self.features, train)
        return CentroidHead(self.features, (sums / np.maximum(1, np.linalg.norm(sums, axis=1))[:, None]))

    def load(self, folder):
        return CentroidHead.load(folder)


class CentroidHead(FittedHead):
    kind = "centroid"

    def __init__(self, features, vectors):
        self.features, self.vectors = features, vectors.astype(np.float32)

    def answers(self, queries, live):
        asked = queries.features(self.features)
        scores = asked @ self.vectors.T
        scores[:, live.hidden] = -np.inf
        return live.merged(GivenAnswers(scores), lambda: GivenAnswers(asked @ live.parts["vectors"].T))

    def new_rows(self, new):
        return {"vectors": new.features(self.features)}

    def grown(self, live):
        vectors = np.concatenate([self.vectors, np.zeros((live.total - live.first, self.vectors.shape[1]))])
        if len(live.ids):
            vectors[live.ids] = live.parts["vectors"]
        return CentroidHead(self.features, vectors)

    def save(self, folder):
        Path(folder).mkdir()
        np.savez(Path(folder) / "centroids.npz", vectors=self.vectors, features=self.features)

    @classmethod
    def load(cls, folder):
        with np.load(Path(folder) / "centroids.npz") as saved:
            return cls(str(saved["features"]), saved["vectors"])


@pytest.fixture(autouse=True)
def registered():
    register(ScaledSettings)
    register(CentroidSettings)
    yield
    del HEADS["scaled"], HEADS["centroid"]


CHANGES = [
    "encoder={kind: bag, source: null, options: {dim: 16, words: 512, bigrams: 0, characters: 0}}",
    "heads={mine: {kind: scaled, scale: 2.0, normalise: false, temperature: {value: 1.0}, loss: decoupled_softmax}}",
    "predict={}",
    "batching.batch_size=32",
    "training.epochs=2",
]


def test_a_trained_kind(tmp_path):
    data = load("synthetic:points=200,labels=20")
    model = train("unidec-cpu", data, tmp_path / "run", changes=CHANGES)
    scales = model.network.head("mine").scales
    assert scales.shape == (20, 1)
    assert not torch.equal(scales, torch.full((20, 1), 2.0))  # trained
    model.add_labels(["a label nobody trained on"], ["new"])
    model.rename_label(data.labels.uids[0], "another text")
    assert "new" in [label.uid for label in model.predict(["a label nobody trained on"], k=21)[0]]
    model.save(tmp_path / "more")
    again = Model.load(tmp_path / "more")
    assert again.network.head("mine").scales.shape == (21, 1)
    assert again.network.head("mine").scales[20].item() == 1.0
    assert again.predict(["another text"], k=3) == model.predict(["another text"], k=3)
    assert plan(model.recipe, data=data, memory=1e9).fits


def test_a_fitted_kind(tmp_path):
    data = load("synthetic:points=200,labels=20")
    heads = "heads={dual: {kind: text, loss: decoupled_softmax}, mine: {kind: centroid, features: dual}}"
    changes = [*CHANGES, heads, "predict={weights: fusion}"]
    model = train("unidec-cpu", data, tmp_path / "run", changes=changes)
    assert model.fitted.heads["mine"].vectors.shape == (20, 16)
    best = model.predict([data.train.texts[0]], k=1, heads="mine")[0][0]
    assert best.id in data.train.targets[0].indices
    model.add_labels(["a label nobody trained on"], ["new"])
    model.rename_label(data.labels.uids[0], "another text")
    model.remove_labels([data.labels.uids[1]])
    for heads in ("mine", "all"):
        uids = [label.uid for label in model.predict(["a label nobody trained on"], k=21, heads=heads)[0]]
        assert "new" in uids
        assert data.labels.uids[1] not in uids
    assert [part.head for part in model.explain("another text").heads] == ["dual", "mine"]
    model.save(tmp_path / "more")
    again = Model.load(tmp_path / "more")
    assert again.fitted.heads["mine"].vectors.shape == (21, 16)
    texts = ["another text", data.train.texts[0]]
    for heads in ("mine", "all"):
        for before, after in zip(model.predict(texts, heads=heads), again.predict(texts, heads=heads), strict=True):
            assert [label.uid for label in before] == [label.uid for label in after]
            np.testing.assert_allclose([one.score for one in before], [one.score for one in after], atol=1e-5)
    planned = plan(model.recipe, data=data, memory=1e9)
    assert planned.fits
    parts = [part for some in planned.memory.moments.values() for part in some]
    assert {part.bytes for part in parts if part.name == "centroids"} == {20 * 16 * 4}


def test_features_of_a_fitted_kind_are_checked():
    heads = "heads={dual: {kind: text, loss: decoupled_softmax}, mine: {kind: centroid, features: duel}}"
    with pytest.raises(SettingError, match=r"heads.mine.features is 'duel'; did you mean 'dual'"):
        load_recipe("unidec-cpu", [*CHANGES, heads, "predict={weights: fusion}"])


def test_noise_of_a_frozen_kind_is_refused():
    heads = "heads={dual: {kind: text, loss: softmax}, mine: {kind: scaled, noise: 0.1, loss: softmax}}"
    assert load_recipe("unidec-cpu", [*CHANGES, heads]).heads["mine"].noise == 0.1
    with pytest.raises(SettingError, match=r"heads.mine.noise has no effect: mine is not trained"):
        load_recipe("unidec-cpu", [*CHANGES, heads, "freeze=[mine]"])


def test_unknown_settings_of_a_kind_are_refused():
    changes = [change.replace("scale: 2.0", "scal: 2.0") for change in CHANGES]
    with pytest.raises(SettingError, match=r"unknown key 'heads.mine.scal'; did you mean 'scale'"):
        load_recipe("unidec-cpu", changes)
