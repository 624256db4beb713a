"""A kind of head defined outside the package: trained, saved, loaded, given a new label, planned."""

from typing import Any, ClassVar, Literal

import pytest
import torch
from torch import nn

from megalabel import load, train
from megalabel.heads import HEADS, DenseHead, DenseSettings, register
from megalabel.model import Model


class ScaledSettings(DenseSettings):
    """The label's text times a learnt number per label."""

    reads_text: ClassVar[bool] = True
    kind: Literal["scaled"] = "scaled"
    scale: float = 1.0

    def build(self, **arguments: Any) -> "ScaledHead":
        return ScaledHead(self, **arguments)


class ScaledHead(DenseHead):
    def __init__(self, settings, **arguments):
        super().__init__(settings, **arguments)
        self.scales = nn.Parameter(torch.full((len(self.shard), 1), settings.scale))

    def label_rows(self, pool, projected):
        return projected * (self.scales if pool is None else self.scales.index_select(0, pool))

    def new_vectors(self, new):
        texts = self.projection(new.encoded(self))
        scales = torch.ones(len(new.texts), 1) if new.added else self.scales[torch.from_numpy(new.ids)]
        return texts * scales, {"scales": scales}

    def row_parameters(self):
        return {"scales": "scales", **super().row_parameters()}


@pytest.fixture
def registered():
    register(ScaledSettings)
    yield
    del HEADS["scaled"]


CHANGES = [
    "encoder={kind: bag, source: null, options: {dim: 16, words: 512, bigrams: 0, characters: 0}}",
    "heads={mine: {kind: scaled, scale: 2.0, normalise: false, temperature: {value: 1.0}, loss: decoupled_softmax}}",
    "predict={}",
    "batching.batch_size=32",
    "training.epochs=2",
]


def test_a_head_kind_defined_outside_the_package(tmp_path, registered):
    from megalabel.plan import plan

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


def test_unknown_settings_of_an_external_kind_are_refused(registered):
    from megalabel.errors import SettingError
    from megalabel.recipes import load_recipe

    changes = [change.replace("scale: 2.0", "scal: 2.0") for change in CHANGES]
    with pytest.raises(SettingError, match=r"unknown key 'heads.mine.scal'; did you mean 'scale'"):
        load_recipe("unidec-cpu", changes)
