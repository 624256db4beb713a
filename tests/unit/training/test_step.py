"""The step: candidates per row give what a shared pool gives, frozen parts get no gradient; scores of candidates."""

import numpy as np
import pytest
import torch
from scipy import sparse

from megalabel.batching import CandidateBuilder, PoolBuilder, Uniform, generator
from megalabel.encoders import BagEncoder
from megalabel.recipes import load_recipe
from megalabel.recipes.build import build_network
from megalabel.training.step import Step, score_candidates

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
    own = CandidateBuilder(targets, lists=lists, mined=LABELS).build(rows, rng=generator(0))
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
