"""The step: candidates of each row's own give what a shared pool gives, frozen parts stay as they are."""

import numpy as np
import pytest
import torch
from megalabel.training.network import Network
from scipy import sparse

from megalabel.batching import CandidateBuilder, PoolBuilder, Uniform, generator
from megalabel.encoders import BagEncoder
from megalabel.recipes import load_recipe

LABELS = 6


def make(*changes):
    torch.manual_seed(0)
    recipe = load_recipe("astec-cpu", ["heads.centroids.start=random", "heads.classifier.dropout=0", *changes])
    encoder = BagEncoder(None, dim=8, words=64, bigrams=0, characters=0)
    return Network(recipe, encoder, LABELS), encoder.tokenise(["red", "blue hat", "shoe"])


def test_all_labels_as_candidates_equal_the_pool_of_all():
    network, tokens = make("training.freeze=false")
    network.head("classifier").bias.data.normal_()
    targets = sparse.csr_matrix(np.eye(3, LABELS, dtype=np.float32))
    rows = np.array([2, 0, 1])
    lists = np.tile(np.arange(LABELS, dtype=np.int32), (3, 1))
    own = CandidateBuilder(targets, lists=lists, mined=LABELS).build(rows, rng=generator(0))
    shared = PoolBuilder(targets, negatives=[Uniform(LABELS)]).build(rows, rng=generator(0))
    found = []
    for batch in (own, shared):
        network.zero_grad()
        parts = network.loss(batch, tokens.take(rows), None)
        assert list(parts) == ["classifier"]  # the other head has no weight
        network.total(parts).backward()
        gradients = {n: p.grad.to_dense().clone() for n, p in network.named_parameters() if p.grad is not None}
        found.append((parts["classifier"].detach(), gradients))
    (value, mine), (expected, theirs) = found
    torch.testing.assert_close(value, expected)
    assert mine.keys() == theirs.keys()
    assert any(name.startswith("encoder.") for name in mine)
    for name in mine:
        torch.testing.assert_close(mine[name], theirs[name], msg=name)


def test_frozen_encoder_and_heads_without_weight_get_no_gradient():
    network, tokens = make()
    targets = sparse.csr_matrix(np.eye(3, LABELS, dtype=np.float32))
    batch = CandidateBuilder(targets, uniform=3).build(np.arange(3), rng=generator(0))
    network.total(network.loss(batch, tokens, None)).backward()
    touched = {name for name, parameter in network.named_parameters() if parameter.grad is not None}
    assert touched and all(name.startswith("heads.classifier.") for name in touched)


@pytest.mark.parametrize(
    ("precision", "kind", "device", "capability", "expected"),
    [
        ("auto", "transformer", "cuda", (8, 6), torch.bfloat16),
        ("auto", "transformer", "cuda", (7, 5), None),
        ("auto", "transformer", "cpu", None, None),
        ("auto", "bag", "cuda", (8, 6), None),
        ("float32", "transformer", "cuda", (8, 6), None),
        ("bfloat16", "transformer", "cuda", (7, 5), torch.bfloat16),
        ("bfloat16", "bag", "cpu", None, torch.bfloat16),
    ],
)
def test_precision_of_the_encoder(monkeypatch, precision, kind, device, capability, expected):
    asked = []
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(torch, "autocast", lambda device, dtype: asked.append((device, dtype)))
    network, _ = make(f"training.precision={precision}", f"encoder={kind}")
    monkeypatch.setattr(Network, "device", torch.device(device))
    network._precision()
    assert asked == ([] if expected is None else [(device, expected)])
