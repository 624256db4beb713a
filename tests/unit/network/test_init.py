"""Initial free vectors and biases."""

import numpy as np
import pytest
import torch

import megalabel as ml
from megalabel.encoders import BagEncoder
from megalabel.network.init import init_heads
from megalabel.recipes import load_recipe
from megalabel.recipes.build import build_network


@pytest.fixture(scope="module")
def data():
    return ml.load("synthetic:points=200,labels=20,seed=1")


def started(data, *changes):
    torch.manual_seed(0)
    encoder = BagEncoder(None, dim=16, words=512, bigrams=0, characters=0)
    network = build_network(load_recipe("inceptionxml-cpu", list(changes)), encoder, len(data.labels))
    queries, labels = network.tokenise(data.train.texts), network.tokenise(data.labels.texts)
    init_heads(network, data.train.targets, queries, labels)
    return network.head("classifier"), encoder.encode(queries["encoder"]), encoder.encode(labels["encoder"])


@pytest.mark.parametrize("init", ["random", "text", "points", "mix"])
def test_mean_score_of_a_label_is_the_log_of_its_frequency(data, init):
    head, queries, _ = started(data, f"heads.classifier.init={init}")
    vectors, bias = head.labels(None, None)
    scores = head.query(queries) @ vectors.T / head.temperature() + bias
    counts = np.asarray(data.train.targets.sum(axis=0)).ravel()
    expected = torch.from_numpy(np.log((counts + 1) / (len(data.train) + 1))).float()
    torch.testing.assert_close(scores.mean(dim=0), expected, atol=1e-3, rtol=1e-3)


def test_mean_score_of_a_squared_hinge_is_minus_its_margin(data):
    head, queries, _ = started(data, "heads.classifier.loss={kind: squared_hinge, margin: 0.5}")
    vectors, bias = head.labels(None, None)
    scores = head.query(queries) @ vectors.T / head.temperature() + bias
    torch.testing.assert_close(scores.mean(dim=0), torch.full((len(data.labels),), -0.5), atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("bias", ["true", "false"])
def test_vectors_start_at_the_size_of_queries_whatever_the_temperature(data, bias):
    change = ["heads.classifier.init=text", f"heads.classifier.bias={bias}"]
    head, _, labels = started(data, *change)
    torch.testing.assert_close(head.table.detach(), torch.nn.functional.normalize(labels, dim=1))
