"""Every part says its own cost: kinds that src does not know, several encoders, label spaces, stages, candidates."""

from typing import Any, ClassVar, Literal

import pytest
import torch

from megalabel.heads import HEADS, FittedSettings, FreeHead, register
from megalabel.heads.cost import HeadCost, in_main_memory
from megalabel.heads.dense import DenseSettings
from megalabel.losses.settings import LOSSES
from megalabel.losses.streaming.blocks import BUDGET
from megalabel.network.spaces import LabelSpace
from megalabel.plan import plan
from megalabel.plan.memory import largest_stage, memory, weight_bytes
from megalabel.plan.work import work
from megalabel.plan.workload import Sizes, Workload
from megalabel.recipes import load_recipe
from megalabel.recipes.build import build_network
from megalabel.recipes.load_recipe import make_recipe
from megalabel.types import LABELS

SIZES = Sizes(points=10_000, labels=2_000, labels_per_point=4.0)
BAG = {"kind": "bag", "source": None, "options": {"dim": 16, "words": 512, "bigrams": 0, "characters": 0}}
TRAINING = {"epochs": 2, "encoder": {"kind": "adamw", "lr": 0.01}}


def recipe(**parts: Any):
    document = {"name": "test", "paper": "-", "about": "-", "encoder": BAG, "training": TRAINING, **parts}
    return make_recipe(document)


def load_of(**parts: Any) -> Workload:
    return Workload(recipe(**parts), SIZES)


@pytest.fixture
def own_kinds():
    """Register a dense and a fitted kind as a user would, for one test."""

    @register
    class TwiceSettings(DenseSettings):
        has_table: ClassVar[bool] = True
        kind: Literal["twice"] = "twice"

        def build(self, **arguments: Any) -> FreeHead:
            raise NotImplementedError

    @register
    class NotesSettings(FittedSettings):
        kind: Literal["notes"] = "notes"

        def cost(self, workload: Any) -> HeadCost:
            return HeadCost(held=(in_main_memory("notes", workload.points, 10),))

    yield
    del HEADS["twice"], HEADS["notes"]


def test_a_kind_of_head_that_src_does_not_know_is_planned(own_kinds):
    heads = {"twice": {"kind": "twice", "loss": "bce", "bias": True}, "notes": {"kind": "notes"}}
    document = {"heads": heads, "predict": {"weights": "fusion"}}
    load = load_of(**document)
    plain = load_of(heads={"twice": {"kind": "free", "loss": "bce", "bias": True}})
    assert weight_bytes(load) == weight_bytes(plain)
    assert [part.bytes for part in memory(load).moments["fitted heads"]] == [100_000]
    assert plan(load.recipe, points=10_000, labels=2_000, memory=1e12).fits


def test_each_encoder_counts_and_a_frozen_one_has_no_optimiser():
    heads = {"dual": {"kind": "text", "encoder": "query", "label_encoder": "label", "loss": "softmax"}}
    document = {"name": "test", "paper": "-", "about": "-", "training": TRAINING, "heads": heads}
    untied = make_recipe({**document, "encoders": {"query": BAG, "label": BAG}})
    tied = make_recipe({**document, "encoder": BAG, "heads": {"dual": {"kind": "text", "loss": "softmax"}}})
    frozen = make_recipe({**document, "encoders": {"query": BAG, "label": BAG}, "freeze": ["label"]})
    one, two, half = (Workload(item, SIZES) for item in (tied, untied, frozen))
    assert weight_bytes(two) == 2 * weight_bytes(one) == weight_bytes(half)
    optimiser = [
        next(part.bytes for part in memory(load).held if part.name == "optimiser") for load in (one, two, half)
    ]
    assert optimiser == [optimiser[0], 2 * optimiser[0], optimiser[0]]
    assert work(one).encoder == pytest.approx(work(two).encoder)
    assert work(half).encoder < work(two).encoder


def cascade(top: int) -> Workload:
    return load_of(
        spaces={"clusters": {"size": 100}},
        heads={
            "meta": {"kind": "free", "space": "clusters", "loss": "bce"},
            "classifier": {"kind": "free", "candidates": {"from": "meta", "top": top}, "loss": "bce"},
        },
        batching={"labels": "heads", "batch_size": 128},
    )


def test_candidates_of_another_head_follow_its_groups():
    load = cascade(5)
    meta, classifier = load.heads
    assert (meta.size, meta.pool, meta.width, meta.listed) == (100, 100, 100, False)
    assert (classifier.size, classifier.width, classifier.listed) == (2_000, (5 + 4) * 20, True)
    assert classifier.pool <= 2_000
    assert load.width == classifier.width
    assert weight_bytes(load) == 4 * (512 * 17 + 16 * 16 + (100 + 2_000) * 16)
    (stage,) = load.stages()
    assert stage.grouped == 2_000
    assert memory(stage).moments["clusters of labels"]
    assert work(cascade(20)).loss > work(load).loss


def test_weights_of_label_spaces_are_those_of_the_network():
    load = cascade(5)
    encoder = load.recipe.encoder.build(0)
    network = build_network(
        load.recipe, encoder, {LABELS: LabelSpace(LABELS, 2_000), "clusters": LabelSpace("clusters", 100)}
    )
    assert weight_bytes(load) == 4 * sum(part.numel() for part in network.parameters() if part.dim())
    assert isinstance(network.head("meta").table, torch.nn.Parameter)


def test_memory_is_that_of_the_largest_stage_and_time_the_sum():
    load = Workload(load_recipe("astec-cpu"), Sizes(points=100_000, labels=50_000))
    surrogate, extreme = load.stages()
    assert (surrogate.stage, extreme.stage) == ("surrogate", "extreme")
    assert surrogate.grouped == 50_000
    assert surrogate.labels < extreme.labels == 50_000
    assert extreme.grouped is None
    assert [encoder.trained for encoder in (*surrogate.encoders, *extreme.encoders)] == [True, False]
    assert largest_stage(load)[1].peak()[1] == max(memory(stage).peak()[1] for stage in load.stages())
    epochs = extreme.recipe.training.epochs
    total = epochs * work(extreme).flops + surrogate.recipe.training.epochs * work(surrogate).flops
    assert epochs * work(load).flops == pytest.approx(total)


def test_a_memory_of_dense_vectors_holds_them():
    heads = {"dual": {"kind": "text", "loss": "softmax"}, "memory": {"kind": "memory", "features": "dual"}}
    load = load_of(heads=heads, predict={"weights": "fusion"})
    (part,) = memory(load).moments["fitted heads"]
    assert (part.name, part.bytes) == ("remembered vectors", 4 * 10_000 * 16)


@pytest.mark.parametrize(
    ("loss", "cost"),
    [
        ({"kind": "bce"}, (1, 3)),
        ({"kind": "softmax"}, (2, 4)),
        ({"kind": "decoupled_softmax", "bce": 1.0}, (2, 4)),
        ({"kind": "triplet"}, (1, 1)),
        ({"kind": "triplet", "bce": 0.5}, (1, 3)),
        ({"kind": "soft_top_k"}, (3, 5)),
        ({"kind": "probabilistic_contrastive"}, (1, 3)),
        ({"kind": "probabilistic_contrastive", "k": 10}, (1, 1)),
        ({"kind": "softmax", "symmetric": 0.5}, (2, 6)),
    ],
)
def test_passes_and_products_of_losses_are_those_that_streamed_documents(loss, cost):
    assert LOSSES[loss["kind"]].model_validate(loss).cost(anchors=0.5) == cost


def test_blocks_of_scores_stay_within_the_budget():
    load = load_of(heads={"free": {"kind": "free", "loss": "softmax"}}, batching={"labels": "all", "batch_size": 4096})
    many = Workload(load.recipe, Sizes(points=10_000, labels=10**6))
    (blocks,) = (part for part in memory(many).moments["loss"] if part.name == "blocks of scores")
    assert 0.9 * BUDGET < blocks.bytes <= BUDGET
