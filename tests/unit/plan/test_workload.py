"""Every part reports its cost: external head kinds, several encoders, label spaces, stages, candidates."""

from dataclasses import replace
from typing import Any, ClassVar, Literal

import pytest
import torch

from megalabel.cost import in_main_memory
from megalabel.encoders.text_size import TextSize
from megalabel.heads import HEADS, FittedSettings, FreeHead, register
from megalabel.heads.cost import HeadCost
from megalabel.heads.dense import DenseSettings
from megalabel.losses.settings import LOSSES
from megalabel.losses.streaming.blocks import BUDGET
from megalabel.network.spaces import LabelSpace
from megalabel.plan import plan
from megalabel.plan.memory import largest_stage, memory, weight_bytes
from megalabel.plan.sizes import Sizes
from megalabel.plan.step import step_moments
from megalabel.plan.work import work
from megalabel.plan.workload import Workload
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


def test_a_head_kind_defined_outside_the_package_is_planned(own_kinds):
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


def test_the_encoder_that_clusters_labels_is_gone_before_its_stage_begins():
    surrogate, _ = Workload(load_recipe("astec-cpu"), Sizes(points=100_000, labels=50_000)).stages()
    encoder = surrogate.encoders[0].cost
    table = 4 * encoder.table[0] * encoder.table[1]
    held = memory(surrogate).held
    assert sum(part.bytes for part in held if part.bytes >= table and part.name != "program") == table


def test_vectors_of_all_tokens_are_a_block_of_their_own():
    """The C library keeps freed blocks of up to 32 MB; larger ones come on top of what it keeps, at each step."""
    long = TextSize.of_tokens(32)
    load = Workload(load_recipe("inceptionxml-cpu"), Sizes(points=100_000, labels=50_000, query=long, label=long))
    again = {part.name: part for part in memory(load).moments["encoder again"]}
    vectors = again["token vectors of queries"]
    assert load.batch == 1023  # 90,000 points in 88 even batches
    assert vectors.bytes == load.batch * 32 * 384 * 4 == again["gradients of token vectors"].bytes
    assert not vectors.small
    assert again["activations of queries"].small


def test_batches_are_mined_with_a_head_over_the_labels():
    heads = {"meta": {"kind": "free", "space": "clusters", "loss": "bce"}, "own": {"kind": "free", "loss": "bce"}}
    assert load_of(spaces={"clusters": {"size": 100}}, heads=heads).mining_head.name == "own"


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


def test_label_texts_of_a_frozen_encoder_are_held_and_not_encoded_in_a_step():
    head = {"kind": "text_free", "loss": "softmax"}
    trained, frozen = load_of(heads={"h": head}), load_of(heads={"h": head}, freeze=["encoder"])

    def held(load):
        return {part.name: part.bytes for part in memory(load).held}

    assert "encoded labels" not in held(trained)
    assert held(frozen)["encoded labels"] == 4 * 2_000 * 16
    assert [side.name for side in trained.sides(trained.encoders[0])] == ["queries", "label texts"]
    assert [side.name for side in frozen.sides(frozen.encoders[0])] == ["queries"]
    assert work(frozen).encoder < work(trained).encoder / 3


def test_partners_and_neighbours_are_encoded_too():
    plain = load_of(heads={"h": {"kind": "text", "loss": "softmax"}}, batching={"batch_size": 50})
    centroid = load_of(heads={"h": {"kind": "text", "centroid": 0.3, "loss": "softmax"}}, batching={"batch_size": 50})
    near = load_of(heads={"h": {"kind": "neighbours", "loss": "softmax"}}, batching={"batch_size": 50})
    assert plain.encoders[0].queries == 50
    assert centroid.encoders[0].queries == 100
    pool = plain.encoders[0].labels
    assert centroid.encoders[0].labels == pool
    assert 50 + 2 * pool < near.encoders[0].queries <= 50 + 3 * pool
    assert pool < near.encoders[0].labels <= 2_000


@pytest.mark.parametrize(
    "head",
    [
        {"kind": "text", "projection": "gated_residual", "own_projection": True, "query_matrix": True},
        {"kind": "gated", "projection": "gated_residual", "bias": True},
        {"kind": "gated", "projection": "tanh", "dim": 8, "query_matrix": True},
        {"kind": "graph", "projection": "relu_residual"},
        {"kind": "graph", "bias": True},
        {"kind": "free", "projection": "gelu_residual"},
    ],
)
def test_weights_of_heads_with_layers_for_label_texts_are_those_of_the_network(head):
    load = load_of(heads={"h": {**head, "loss": "bce"}})
    network = build_network(load.recipe, load.recipe.encoder.build(0), 2_000)
    assert weight_bytes(load) == 4 * sum(part.numel() for part in network.stored().values() if part.dim())


def test_texts_of_neighbours_in_a_label_graph_are_encoded_too():
    loads = [
        load_of(heads={"h": {"kind": "graph", "neighbours": near, "loss": "bce"}}, batching={"batch_size": 50})
        for near in (1, 4, 2_000)
    ]
    alone, some, every = (load.encoders[0].labels for load in loads)
    assert alone == loads[0].heads[0].pool < some < 4 * alone
    assert every == 2_000


def test_the_text_of_a_group_is_as_long_as_those_of_its_labels():
    spaces = {"clusters": {"size": 100}}
    stages = [{"name": "a", "space": "clusters", "drop": ["h"]}, {"name": "b"}]
    first, second = load_of(
        spaces=spaces, heads={"h": {"kind": "text", "projection": "linear", "loss": "bce"}}, stages=stages
    ).stages()
    assert first.sizes.label.words == pytest.approx(20 * second.sizes.label.words)


def test_a_half_table_halves_what_a_step_over_all_labels_holds():
    sgd = {"epochs": 2, "encoder": {"kind": "adamw", "lr": 0.01}, "tables": {"kind": "sgd", "lr": 0.1}}
    loads = [
        load_of(
            heads={"h": {"kind": "free", "dtype": dtype, "normalise": False, "loss": {"kind": "bce"}}},
            batching={"labels": "all"}, training=sgd,
        )
        for dtype in ("float32", "bfloat16")
    ]  # fmt: skip
    for moment, name in (("loss", "gradients of label vectors"), ("update", "gradients of free vectors")):
        full, half = (next(part.bytes for part in memory(load).moments[moment] if part.name == name) for load in loads)
        assert full == 4 * 2_000 * 16 and half == full / 2
    full, half = (next(part.bytes for part in memory(load).held if part.name == "free vectors") for load in loads)
    assert half == full / 2


@pytest.mark.parametrize(
    ("positives", "unsampled", "size"), [("all", "mask", 0), ("one", "mask", 1), ("one", "negative", 0)]
)
def test_positives_that_are_not_drawn_are_masked_in_memory(positives, unsampled, size):
    batching = {"labels": "all", "batch_size": 100, "loss_positives": positives}
    batching |= {"unsampled": unsampled} if positives == "one" else {}
    load = load_of(heads={"dual": {"kind": "text", "loss": "softmax"}}, batching=batching)
    masks = [part.bytes for parts in step_moments(load).values() for part in parts if part.name.startswith("mask")]
    assert max(masks) == size * 100 * 2_000


def test_steps_and_refreshes_of_every_way_to_make_batches():
    heads = {"dual": {"kind": "text", "loss": "softmax"}}
    by_label = load_of(heads=heads, batching={"batch_size": 100, "order": "by_label"})
    assert (by_label.steps, by_label.batch, by_label.refreshes) == (20, 100, 0)  # 2,000 labels
    assert by_label.pool <= 100
    mined = {"batch_size": 100, "negatives": {"mined": 2, "bm25": 1, "top": 7}}
    by_step = load_of(heads=heads, batching=mined | {"refresh": {"start": 1, "every_steps": 30}})
    assert (by_step.steps, by_step.refreshes) == (90, 3)  # 9,000 train points; at 90, 120 and 150
    held = [part for part in memory(by_step).held if part.name == "BM25 lists"]
    assert [part.bytes for part in held] == [4 * 7 * 10_000]
    order = {"kind": "clustered", "size": 1, "double_at": [1]}
    growing = load_of(heads=heads, batching={"batch_size": 100, "order": order, "refresh": {"start": 0}})
    assert growing.refreshes == 2
    assert work(growing).flops > work(load_of(heads=heads, batching={"batch_size": 100})).flops


def test_steps_are_those_of_the_rows_that_are_trained_on():
    heads = {"dual": {"kind": "text", "loss": "softmax"}}

    def steps(sizes: Sizes, **training: Any) -> tuple[int, int]:
        load = Workload(recipe(heads=heads, batching={"batch_size": 300}, training=TRAINING | training), sizes)
        return load.steps, load.validation

    assert steps(SIZES) == (30, 1_000)
    assert steps(SIZES, validation=0) == (34, 0)
    assert steps(replace(SIZES, val=4_000), validation=0) == (20, 4_000)
