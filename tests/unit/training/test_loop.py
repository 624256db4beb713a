"""Which optimiser trains which parameters."""

import pytest

from megalabel import load
from megalabel.encoders.settings import make_encoder
from megalabel.errors import SettingError
from megalabel.recipes import load_recipe
from megalabel.training.loop import Loop
from megalabel.training.network import Network
from megalabel.training.optim import AdamW, LazyAdamW, RowAdagrad
from megalabel.training.run import Texts

SMALL = ["encoder={kind: bag, source: null, options: {dim: 16, words: 64}}", "batching.batch_size=32"]


@pytest.fixture(scope="module")
def data():
    return load("synthetic:points=100,labels=20,seed=1")


def make(data, *changes):
    recipe = load_recipe("unidec-cpu", [*SMALL, *changes])
    encoder = make_encoder(recipe.encoder, recipe.seed, data.train.texts, data.labels.texts)
    texts = Texts.of(data, encoder)
    return Loop(recipe, Network(recipe, encoder, len(data.labels)), data.train, texts.train, texts.labels)


def names(optimiser):
    return {name for group in optimiser.param_groups for name in group["names"]}


def test_tables_have_the_optimiser_the_recipe_names(data):
    found = make(data).optimisers
    assert {name: type(optimiser) for name, optimiser in found.items()} == {
        "encoder": AdamW, "heads": AdamW, "tables": RowAdagrad,
    }  # fmt: skip
    assert names(found["tables"]) == {"encoder.table", "encoder.weights", "heads.classifier.tower.table"}


@pytest.mark.parametrize("labels", ["pool", "all"])
def test_tables_without_settings_follow_the_encoder_row_by_row(data, labels):
    changes = ["training.tables=null", "training.encoder={lr: 0.02, weight_decay: 0.1}", f"batching.labels={labels}"]
    loop = make(data, *changes, "batching.negatives={mined: 0}")
    tables = loop.optimisers["tables"]
    assert isinstance(tables, LazyAdamW)
    assert [group["lr"] for group in tables.param_groups] == [0.02, 0.02]
    assert [group["weight_decay"] for group in tables.param_groups] == [0.1, 0.0]
    losses = [result.loss for _ in range(4) for result in loop.run_epoch()]
    assert losses[-1] < losses[0]


def test_dense_adamw_for_sparse_gradients_is_refused(data):
    wanted = "training.tables={kind: adamw, lr: 0.01}"
    with pytest.raises(SettingError, match=r"training.tables.kind is 'adamw'.*lazy_adamw"):
        make(data, wanted)
    everything = ["batching.labels=all", "batching.negatives={mined: 0}", "training.freeze=true"]
    loop = make(data, wanted, *everything)  # free vectors get dense gradients here
    assert isinstance(loop.optimisers["tables"], AdamW)
    assert next(loop.run_epoch()).loss > 0
