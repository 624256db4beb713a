"""Which optimiser trains which parameters, and what the loop carries over a checkpoint."""

import ctypes
from copy import deepcopy

import pytest
import torch
from torch.optim import AdamW

from megalabel import load
from megalabel.errors import SettingError
from megalabel.recipes import load_recipe
from megalabel.recipes.build import build_encoders, build_network
from megalabel.training import loop as looping
from megalabel.training.loop import Loop
from megalabel.training.optim import LazyAdamW, RowAdagrad
from megalabel.training.phase import Texts

SMALL = ["encoder={kind: bag, source: null, options: {dim: 16, words: 64}}", "batching.batch_size=32"]


@pytest.fixture(scope="module")
def data():
    return load("synthetic:points=100,labels=20,seed=1")


def make(data, *changes):
    recipe = load_recipe("unidec-cpu", [*SMALL, *changes])
    encoders = build_encoders(recipe, data)
    texts = Texts.of(data, encoders)
    return Loop(recipe, build_network(recipe, encoders, len(data.labels)), data.train, texts.train, texts.labels)


def names(optimiser):
    return {name for group in optimiser.param_groups for name in group["names"]}


def test_tables_have_the_optimiser_the_recipe_names(data):
    found = make(data).optimisers
    assert {name: type(optimiser) for name, optimiser in found.items()} == {
        "encoder": AdamW, "heads": AdamW, "tables": RowAdagrad,
    }  # fmt: skip
    assert names(found["tables"]) == {
        "encoders.encoder.table", "encoders.encoder.weights", "heads.classifier.table",
    }  # fmt: skip


@pytest.mark.parametrize("labels", ["pool", "all"])
def test_tables_without_settings_follow_the_encoder_row_by_row(data, labels):
    changes = ["training.tables=null", "training.encoder={lr: 0.02, weight_decay: 0.1}", f"batching.labels={labels}"]
    loop = make(data, "batching.negatives={}", *changes)
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
    everything = ["batching.labels=all", "freeze=[encoder]"]
    loop = make(data, wanted, *everything)  # free vectors get dense gradients here
    assert isinstance(loop.optimisers["tables"], AdamW)
    assert next(loop.run_epoch()).loss > 0


@pytest.mark.parametrize("order", ["shuffled", "clustered"])
def test_counts_of_pools_survive_a_checkpoint_bit_for_bit(data, order):
    changes = ["batching.log_q=true", f"batching.order={order}", "batching.refresh={start: 1, every: 1}"]
    loop = make(data, *changes)
    losses = []
    for result in (result for _ in range(2) for result in loop.run_epoch()):
        losses.append(result.loss)
        if len(losses) == 5:  # in the second epoch
            state, arrays = loop.state(), {name: array.copy() for name, array in loop.arrays().items()}
            weights = {name: value.clone() for name, value in loop.network.state_dict().items()}
            optimisers = {name: deepcopy(optimiser.state_dict()) for name, optimiser in loop.optimisers.items()}
    again = make(data, *changes)
    again.restore(state, arrays)
    again.network.load_state_dict(weights)
    for name, optimiser in again.optimisers.items():
        optimiser.load_state_dict(optimisers[name])
    assert [result.loss for result in again.run_epoch()] == losses[5:]
    assert (again.log_q.counts_ == loop.log_q.counts_).all()
    assert again.log_q.steps_ == len(losses)


def test_log_q_changes_the_loss_once_a_pool_lacks_a_label(data):
    losses = {}
    for log_q in ("false", "true"):
        torch.manual_seed(0)
        loop = make(data, "batching.batch_size=8", f"batching.log_q={log_q}")
        losses[log_q] = [result.loss for result in loop.run_epoch()]
    assert losses["false"][0] == losses["true"][0]  # all chances are 1
    assert losses["false"][-1] != losses["true"][-1]


def test_memory_of_another_c_library_is_left_alone(monkeypatch):
    def missing(name):
        raise OSError("no C library")

    looping._malloc_trim.cache_clear()
    monkeypatch.setattr(ctypes, "CDLL", missing)
    assert looping._malloc_trim()(0) == 0
    looping.trim_memory()
    monkeypatch.undo()
    looping._malloc_trim.cache_clear()
