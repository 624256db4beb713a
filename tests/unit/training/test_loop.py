"""Which optimiser trains which parameters, and what the loop carries over a checkpoint."""

from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from torch.optim import AdamW

from megalabel import load
from megalabel.errors import DataError, SettingError
from megalabel.plan.sizes import Sizes
from megalabel.plan.workload import Workload
from megalabel.ranks import ALONE, Ranks
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


def make(data, *changes, ranks=ALONE):
    recipe = load_recipe("unidec-cpu", [*SMALL, *changes])
    encoders = build_encoders(recipe, data)
    texts = Texts.of(data, encoders)
    network = build_network(recipe, encoders, len(data.labels), ranks)
    return Loop(recipe, network, data.train, texts.train, texts.labels)


def names(optimiser):
    return {name for group in optimiser.param_groups for name in group["names"]}


def test_tables_have_the_optimiser_the_recipe_names(data):
    actual = make(data).optimisers
    assert {name: type(optimiser) for name, optimiser in actual.items()} == {
        "encoder": AdamW, "heads": AdamW, "tables": RowAdagrad,
    }  # fmt: skip
    assert names(actual["tables"]) == {
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


@pytest.mark.parametrize("settings", ["momentum: 0.9", "momentum: 0, weight_decay: 0.1"])
def test_momentum_and_decay_of_sgd_for_sparse_gradients_are_refused(data, settings):
    with pytest.raises(SettingError, match=r"training.tables.kind is 'sgd' with momentum or weight_decay.*lazy_adamw"):
        make(data, f"training.tables={{kind: sgd, lr: 0.01, {settings}}}")
    loop = make(data, "training.tables={kind: sgd, lr: 0.01, momentum: 0}")
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


WAYS = {
    "by label": ["batching.order=by_label", "batching.positives=some", "batching.negatives={}", "batching.refresh={}",
                 "batching.batch_size=5"],
    "growing clusters": ["batching.order={kind: clustered, size: 1, double_at: [1, 2]}", "batching.negatives={}",
                         "batching.refresh={start: 0, every: 5}", "batching.batch_size=20"],
    "mined within an epoch": ["batching.order=shuffled", "batching.refresh={start: 0, every_steps: 3}",
                              "batching.batch_size=20"],
}  # fmt: skip


@pytest.mark.parametrize("changes", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("stop", [2, 3, 5, 7, 10])
def test_every_way_to_make_batches_resumes_bit_for_bit(data, changes, stop):
    """Also from a step at which negatives are mined, and from the steps around it."""
    loop = make(data, *changes)
    losses = []
    for result in (result for _ in range(3) for result in loop.run_epoch()):
        losses.append(result.loss)
        if len(losses) == stop:
            state, arrays = loop.state(), {name: array.copy() for name, array in loop.arrays().items()}
            weights = {name: value.clone() for name, value in loop.network.state_dict().items()}
            optimisers = {name: deepcopy(optimiser.state_dict()) for name, optimiser in loop.optimisers.items()}
    again = make(data, *changes)
    again.restore(state, arrays)
    again.network.load_state_dict(weights)
    for name, optimiser in again.optimisers.items():
        optimiser.load_state_dict(optimisers[name])
    rest = []
    while again.epoch < 3:
        rest += [result.loss for result in again.run_epoch()]
    assert rest == losses[stop:]
    assert len(losses) == 12


@pytest.mark.parametrize("changes", [*WAYS.values(), ["batching.refresh.start=1"]], ids=[*WAYS, "clustered"])
@pytest.mark.parametrize("limit", ["batching.batch_size=7", "batching.min_batches=7"])
def test_batches_are_even_and_as_many_as_planned(data, changes, limit):
    loop = make(data, *changes, limit)
    plan = Workload(loop.recipe, replace(Sizes.of(data), points=len(data.train), val=0))
    for _ in range(3):
        queries = [result.queries for result in loop.run_epoch()]
        assert max(queries) - min(queries) <= 1 and max(queries) == loop.batch_size == plan.batch
        assert len(queries) == loop.steps_per_epoch == plan.steps


@pytest.mark.parametrize(
    ("way", "change"),
    [
        ("by label", "batching.order={kind: by_label, power: 2.0}"),
        ("by label", "batching.order={kind: by_label, replacement: false}"),
        ("growing clusters", "batching.order.size=3"),
        ("growing clusters", "batching.order.double_at=[2]"),
        ("growing clusters", "batching.order.double_at=[]"),
        ("mined within an epoch", "batching.refresh.every_steps=5"),
        ("mined within an epoch", "batching.refresh={start: 0, every: 1}"),
    ],
)
def test_every_setting_of_the_order_has_an_effect(data, way, change):
    losses = []
    for changes in (WAYS[way], [*WAYS[way], change]):
        torch.manual_seed(0)
        loop = make(data, *changes, "batching.batch_size=5", "batching.positives=some")
        losses.append([result.loss for _ in range(3) for result in loop.run_epoch()])
    assert losses[0] != losses[1]


def test_negatives_are_mined_at_their_steps_from_the_weights_of_that_step(data, monkeypatch):
    calls = []

    def record(network, *args, **kwargs):
        calls.append((loop.step, loop.network.heads["classifier"].table.detach().clone()))
        return refresh(network, *args, **kwargs)

    refresh = looping.refresh
    monkeypatch.setattr(looping, "refresh", record)
    loop = make(data, *WAYS["mined within an epoch"], "batching.refresh.start=1")
    assert all(loop.network.training for _ in range(3) for _ in loop.run_epoch())
    assert loop.step == 12
    assert [step for step, _ in calls] == [4, 6, 9]  # the second epoch begins at 4
    assert not torch.equal(calls[0][1], calls[1][1])


def test_clusters_grow(data):
    loop = make(data, *WAYS["growing clusters"])
    sizes = []
    for _ in range(3):
        list(loop.run_epoch())
        sizes.append(int(torch.bincount(torch.from_numpy(loop.refreshed.clusters)).max()))
    assert sizes == [1, 2, 4]


def test_batches_of_labels(data):
    loop = make(data, *WAYS["by label"])
    assert loop.steps_per_epoch == 4  # 20 labels
    results = list(loop.run_epoch())
    assert len(results) == 4
    assert max(result.statistics["pool_size"] for result in results) <= 5
    with pytest.raises(DataError, match="larger than the 20 labels with a training point"):
        make(data, *WAYS["by label"], "batching.batch_size=21")


def test_log_q_changes_the_loss_once_a_pool_lacks_a_label(data):
    losses = {}
    for log_q in ("false", "true"):
        torch.manual_seed(0)
        loop = make(data, "batching.batch_size=8", f"batching.log_q={log_q}")
        losses[log_q] = [result.loss for result in loop.run_epoch()]
    assert losses["false"][0] == losses["true"][0]  # all chances are 1
    assert losses["false"][-1] != losses["true"][-1]


def test_the_rate_follows_steps_and_milestones(data):
    loop = make(data, "training.warmup=0.1", "training.warmup_steps=3", "training.epochs=4", "training.milestones=[2]")
    assert loop.schedule.warmup_steps == 3
    assert loop.schedule.milestones == (2 * loop.steps_per_epoch,)
    loop = make(data, "training.epochs=4")
    assert loop.schedule.warmup_steps == round(loop.recipe.training.warmup * 4 * loop.steps_per_epoch)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["training.milestone_factor=0.75"], "milestone_factor has no effect: there are no milestones"),
        (["training.epochs=3", "training.milestones=[3]"], "training ends after 3 epochs"),
        (["training.epochs=3", "training.milestones=[1, 1]"], "milestones: duplicate epoch"),
        (["training.warmup=0.3", "training.warmup_steps=2"], "warmup has no effect: warmup_steps is given"),
        (["training.warmup_steps=100000", "training.warmup=0.1"], "a warm-up of 100000 steps in a training of"),
    ],
)
def test_a_rate_that_cannot_be_is_refused(data, changes, message):
    with pytest.raises(SettingError, match=message):
        make(data, *changes).schedule.factor(0)


PROPOSED = "{dual: {kind: text, loss: bce}, second: {kind: text, candidates: {from: dual, top: 3}, loss: bce}}"


@pytest.mark.parametrize(
    ("heads", "words"),
    [
        (
            "{near: {kind: neighbours, loss: bce}}",
            "heads.near: several ranks cannot train a head that reads neighbours",
        ),
        (PROPOSED, "heads.second.candidates: candidates from another head cannot be used with several ranks"),
    ],
)
def test_what_several_ranks_cannot_train_is_refused(data, heads, words):
    changes = [f"heads={heads}", "predict={}", "training.tables={kind: row_adagrad, lr: 0.05}", "training.heads=null"]
    make(data, *changes)
    with pytest.raises(SettingError, match=f"{words}.*train in one process"):
        make(data, *changes, ranks=Ranks(rank=0, world=2))
