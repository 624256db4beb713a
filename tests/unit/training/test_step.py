"""The step: candidates per row equal a shared pool, frozen parts get no gradient; scores of candidates."""

import numpy as np
import pytest
import torch
from scipy import sparse
from torch.nn.functional import normalize

from megalabel.batching import CandidateBuilder, PoolBuilder, Uniform, generator
from megalabel.encoders import BagEncoder
from megalabel.errors import SettingError
from megalabel.heads.dense import Points
from megalabel.recipes import load_recipe
from megalabel.recipes.build import build_network
from megalabel.recipes.load_recipe import make_recipe
from megalabel.training.candidate_scores import score_candidates
from megalabel.training.step import Step
from megalabel.types import Batch, Targets, View

LABELS = 6


def make(*, frozen=True):
    """Return the last stage of Astec as a step, and the tokens of three queries and of the labels."""
    torch.manual_seed(0)
    changes = ["heads.centroids.init=random", "heads.classifier.dropout=0"]
    _, recipe = load_recipe("astec-cpu", changes).stage_recipes()[-1]
    recipe = recipe if frozen else recipe.model_copy(update={"freeze": ()})
    encoder = BagEncoder(None, dim=8, words=64, bigrams=0, characters=0)
    network = build_network(recipe, encoder, LABELS)
    labels = network.tokenise([f"label {number}" for number in range(LABELS)])
    return Step(network, 512), network.tokenise(["red", "blue hat", "shoe"]), labels


def test_all_labels_as_candidates_equal_the_pool_of_all():
    step, tokens, labels = make(frozen=False)
    step.network.head("classifier").bias.data.normal_()
    targets = sparse.csr_matrix(np.eye(3, LABELS, dtype=np.float32))
    rows = np.array([2, 0, 1])
    lists = np.tile(np.arange(LABELS, dtype=np.int32), (3, 1))
    own = CandidateBuilder(targets, lists=[(lists, LABELS)]).build(rows, rng=generator(0))
    shared = PoolBuilder(targets, negatives=[Uniform(LABELS)]).build(rows, rng=generator(0))
    results = []
    for batch in (own, shared):
        step.network.zero_grad()
        parts = step.losses(batch, tokens.take(rows), labels)
        assert list(parts) == ["classifier"]  # the other head has no loss
        step.total(parts).backward()
        gradients = {n: p.grad.to_dense().clone() for n, p in step.network.named_parameters() if p.grad is not None}
        results.append((parts["classifier"].detach(), gradients))
    (value, mine), (expected, theirs) = results
    torch.testing.assert_close(value, expected)
    assert mine.keys() == theirs.keys()
    assert any(name.startswith("encoders.encoder.") for name in mine)
    for name in mine:
        torch.testing.assert_close(mine[name], theirs[name], msg=name)


def test_frozen_encoder_and_heads_without_a_loss_get_no_gradient():
    step, tokens, labels = make()
    targets = sparse.csr_matrix(np.eye(3, LABELS, dtype=np.float32))
    batch = CandidateBuilder(targets, uniform=3).build(np.arange(3), rng=generator(0))
    step.total(step.losses(batch, tokens, labels)).backward()
    touched = {name for name, parameter in step.network.named_parameters() if parameter.grad is not None}
    assert touched and all(name.startswith("heads.classifier.") for name in touched)


@pytest.mark.parametrize(
    ("b", "labels", "width"), [(1, 1, 1), (3, 7, 5), (20, 4, 9), (17, 50, 1), (0, 3, 2), (2, 3, 0)]
)
def test_value_and_gradients_are_those_of_the_plain_form(b, labels, width):
    generator = torch.Generator().manual_seed(b)
    queries = torch.randn(b, 6, generator=generator, requires_grad=True)
    vectors = torch.randn(labels, 6, generator=generator, requires_grad=True)
    places = torch.randint(labels, (b, width), generator=generator)
    scores, expected = score_candidates(queries, vectors, places), (vectors[places] * queries.unsqueeze(1)).sum(2)
    torch.testing.assert_close(scores, expected)
    sent = torch.randn(b, width, generator=generator)
    ours, theirs = (torch.autograd.grad(values, [queries, vectors], sent) for values in (scores, expected))
    for mine, plain in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, plain)


def test_two_threads_give_the_same_bits():
    generator, threads = torch.Generator().manual_seed(0), torch.get_num_threads()
    queries = torch.randn(300, 32, generator=generator)
    vectors = torch.randn(40, 32, generator=generator, requires_grad=True)
    places = torch.randint(40, (300, 50), generator=generator)
    try:
        torch.set_num_threads(2)
        first, *others = [
            torch.autograd.grad(score_candidates(queries, vectors, places).square().sum(), vectors)[0] for _ in range(3)
        ]
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(first, other) for other in others)


# ------------------------------------------------------------------ texts of train points, and texts encoded once

WORDS = ["red shoe", "blue hat", "green coat", "old red hat", "warm coat", "blue shoe", "shoe", "hat"]
TRUTH = sparse.csr_matrix(
    np.array(
        [[1, 0, 0, 0, 0, 1], [0, 1, 0, 0, 0, 0], [0, 0, 1, 0, 0, 0], [1, 1, 0, 0, 0, 0],
         [0, 0, 1, 0, 1, 0], [0, 1, 0, 1, 0, 0], [1, 0, 0, 0, 0, 0], [0, 1, 0, 0, 0, 1]], dtype=np.float32,
    )
)  # fmt: skip


def towers(head, *, freeze=()):
    """Return a step of one head over a small bag, and the tokens of the train points and of the labels."""
    torch.manual_seed(0)
    document = {
        "name": "towers", "paper": "none", "about": "none", "heads": {"dual": head}, "freeze": list(freeze),
        "encoder": {"kind": "bag", "source": None, "options": {"dim": 8, "words": 64, "bigrams": 0, "characters": 0}},
        "training": {"epochs": 1, "encoder": {"lr": 1e-3}},
    }  # fmt: skip
    recipe = make_recipe(document)
    encoder = BagEncoder(None, dim=8, words=64, bigrams=0, characters=0)
    network = build_network(recipe, encoder, LABELS).double()
    return Step(network, 512), network.tokenise(WORDS), network.tokenise([f"label {word}" for word in WORDS[:LABELS]])


def vectors_of(step, tokens):
    return step.network.encoders["encoder"](tokens["encoder"])


@pytest.mark.parametrize("normalised", [True, False])
def test_a_centroid_is_the_sum_of_a_label_and_of_a_second_point(normalised):
    """SiameseXML: .7 L(x, z) + .3 L(norm(f(x') + f(z)), z)."""
    loss = {"kind": "probabilistic_contrastive", "c": 0.9, "d": 1.5, "k": 2, "threshold": 0.0, "scaled": False}
    head = {"kind": "text", "centroid": 0.3, "normalise": normalised, "temperature": {"value": 1.0}, "loss": loss}
    step, points, labels = towers(head)
    rows, anchors, partners = torch.tensor([0, 5, 2]), torch.tensor([0, 1, 2]), torch.tensor([3, 7, 4])
    pool = torch.tensor([0, 1, 2, 5])
    targets = Targets.from_csr(sparse.csr_matrix(TRUTH[rows.numpy()][:, pool.numpy()]))
    batch = Batch(rows, {"labels": View(targets, pool)}, anchors, partners)
    value = step.losses(batch, points.take(rows.numpy()), labels, points=points)["dual"]

    def scaled(vectors):
        return normalize(vectors, dim=1) if normalised else vectors

    raw, label = vectors_of(step, points), vectors_of(step, labels)
    formula = step.network.head("dual").loss
    first = formula(scaled(raw[rows]) @ scaled(label[pool]).T, targets)
    centroids = scaled(raw[partners] + label[anchors])
    expected = 0.7 * first + 0.3 * formula(centroids @ scaled(label[pool]).T, targets)
    torch.testing.assert_close(value, expected)
    encoder = step.network.encoders["encoder"]
    gradients = []
    for each in (value, expected):
        step.network.zero_grad()
        each.backward()
        gradients.append(encoder.table.grad.to_dense().clone())
    torch.testing.assert_close(*gradients)


def test_a_centroid_needs_batches_made_of_labels():
    step, points, labels = towers({"kind": "text", "centroid": 0.3, "loss": "softmax"})
    batch = PoolBuilder(TRUTH).build(np.arange(3), rng=generator(0))
    with pytest.raises(SettingError, match=r"the batches are not made of labels; set batching.order to by_label"):
        step.losses(batch, points.take(np.arange(3)), labels, points=points)
    anchors = torch.tensor([0, 1, 4])  # a pool of positives lacks label 4
    batch = Batch(batch.queries, batch.views, anchors, torch.tensor([3, 5, 4]))
    with pytest.raises(SettingError, match=r"lacks a label that a query was drawn for; leave batching.cap out"):
        step.losses(batch, points.take(np.arange(3)), labels, points=points)


def test_neighbours_are_encoded_beside_the_queries():
    step, points, labels = towers({"kind": "neighbours", "points": 2, "point_labels": 2, "loss": "softmax"})
    head = step.network.head("dual")
    head.attach(TRUTH, seed=1)
    with torch.no_grad():
        head.label_matrix.normal_(), head.point_matrix.normal_()
    batch = PoolBuilder(TRUTH).build(np.array([0, 4]), rng=generator(0))
    rows, pool = batch.queries, batch.view.pool
    value = step.losses(batch, points.take(rows.numpy()), labels, points=points)["dual"]
    raw, label = vectors_of(step, points), vectors_of(step, labels)
    near = head.points(pool, rows)
    assert len(near) and not set(near.tolist()) & {0, 4}
    vectors, _ = head.labels(pool, label[head.support(pool)], points=Points(near, raw[near]))
    scores = head.query(raw[rows]) @ vectors.T / head.temperature()
    expected = head.loss(scores, batch.view.targets, batch.view.mask)
    torch.testing.assert_close(value, expected)
    every = Batch(rows, {"labels": View(Targets.from_csr(sparse.csr_matrix(TRUTH[rows.numpy()])))})
    with pytest.raises(SettingError, match="'dual' reads the neighbours of the labels of a step"):
        step.losses(every, points.take(rows.numpy()), labels, points=points)


@pytest.mark.parametrize("kind", ["text", "text_free", "shared"])
def test_label_texts_of_a_frozen_encoder_are_encoded_once(kind):
    settings = {"kind": kind, "projection": "linear", "dim": 6, "loss": "softmax"}
    step, points, labels = towers(settings, freeze=["encoder"])
    calls, encode = [], step.network.encode

    def counted(name, tokens, length):
        calls.append(len(tokens))
        return encode(name, tokens, length)

    step.network.encode = counted
    step.network.train()
    for place in range(3):
        batch = PoolBuilder(TRUTH).build(np.array([place, place + 4]), rng=generator(place))
        value = step.losses(batch, points.take(batch.queries.numpy()), labels)["dual"]
        head, pool = step.network.head("dual"), batch.view.pool
        vectors, _ = head.labels(pool, vectors_of(step, labels)[pool])
        queries = head.query(vectors_of(step, points)[batch.queries])
        expected = head.loss(queries @ vectors.T / head.temperature(), batch.view.targets, batch.view.mask)
        torch.testing.assert_close(value, expected)
        value.backward()
    assert calls == [LABELS]
    assert all(parameter.grad is None for parameter in step.network.encoders.parameters())
