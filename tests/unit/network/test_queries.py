"""Features of queries, and the rows of new labels, compared with the rules written out by hand."""

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

import megalabel as ml
from megalabel.network import queries
from megalabel.network.queries import LabelMaker, QueryTexts

TEXTS = ["zygote quokka", "umbrella velvet xylem"]
IDS = np.array([60, 61])


@pytest.fixture(scope="module")
def data(served_data):
    return ml.load(served_data)


@pytest.fixture(scope="module")
def fused_model(fused_run):
    return ml.Model.load(fused_run)


@pytest.fixture(scope="module")
def summed_model(summed_run):
    return ml.Model.load(summed_run)


def maker(model):
    model.network.eval()
    return LabelMaker(model.network, model.fitted, model.label_side(), model.labels.texts)


@torch.no_grad()
def encoded(model, texts):
    return model.network.encode("encoder", model.network.tokenise(texts)["encoder"], None)


@torch.no_grad()
def neighbours(model, vectors, labels, temperature):
    """Return the weights [n, 60] of the ten labels nearest by text, all of which have train points."""
    cosines = normalize(vectors, dim=1) @ normalize(labels, dim=1).T
    best = cosines.topk(queries.NEAREST, dim=1)
    return torch.zeros_like(cosines).scatter(1, best.indices, (best.values / temperature).softmax(dim=1))


def test_features_are_computed_once(fused_model, monkeypatch):
    calls, encode = [], fused_model.network.encode
    monkeypatch.setattr(fused_model.network, "encode", lambda *arguments: calls.append(1) or encode(*arguments))
    asked = QueryTexts(TEXTS, fused_model.network, fused_model.fitted)
    assert asked.features("ngrams") is asked.features("ngrams")
    assert asked.features("ngrams").shape[0] == 2
    assert asked.features("classifier") is asked.features("classifier")
    np.testing.assert_array_equal(asked.features("classifier"), asked.vectors["classifier"].numpy())
    assert list(asked.vectors) == ["dual", "classifier"]
    assert len(calls) == 1


def test_rare_labels_are_those_with_the_fewest_points(summed_model, data):
    rare = maker(summed_model).rare
    assert rare.tolist() == np.flatnonzero(data.counts == data.counts.min()).tolist()


def test_a_new_label_of_a_text_head_is_its_text(fused_model):
    rows = maker(fused_model).rows(IDS, TEXTS, added=True)
    head = fused_model.network.head("dual")
    with torch.no_grad():
        expected, _ = head.labels(None, encoded(fused_model, TEXTS), search=True)
    torch.testing.assert_close(rows.parts["dual"]["vectors"], expected)
    assert rows.ids.tolist() == [60, 61]
    assert rows.added.tolist() == [True, True]


def test_a_new_label_of_a_text_free_head_has_no_correction(summed_model):
    rows = maker(summed_model).rows(IDS, TEXTS, added=True)
    torch.testing.assert_close(rows.parts["dual"]["vectors"], normalize(encoded(summed_model, TEXTS), dim=1))
    assert not rows.parts["dual"]["free"].any()


def test_a_new_label_of_a_free_head_is_the_mean_of_its_nearest_labels(fused_model):
    """Text is compared by the text head, at its temperature."""
    head, made = fused_model.network.head("classifier"), maker(fused_model)
    dual = made.side["dual"].vectors
    weights = neighbours(fused_model, encoded(fused_model, TEXTS), dual, 0.05)
    norm = head.table[made.rare].norm(dim=1).median()
    expected = normalize(weights @ head.table, dim=1) * norm
    rows = made.rows(IDS, TEXTS, added=True).parts["classifier"]
    torch.testing.assert_close(rows["free"], expected, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(rows["vectors"], normalize(expected, dim=1), atol=1e-5, rtol=1e-4)
    assert rows["bias"].tolist() == [head.bias[made.rare].median().item()] * 2


def test_without_a_text_head_plain_encoder_vectors_are_compared(summed_model):
    assert summed_model.network.text_head() is None
    head, made = summed_model.network.head("classifier"), maker(summed_model)
    labels = encoded(summed_model, summed_model.labels.texts)
    weights = neighbours(summed_model, encoded(summed_model, TEXTS), labels, queries.TEMPERATURE)
    norm = head.table[made.rare].norm(dim=1).median()
    rows = made.rows(IDS, TEXTS, added=True).parts["classifier"]
    torch.testing.assert_close(rows["vectors"], normalize(weights @ head.table, dim=1) * norm, atol=1e-5, rtol=1e-4)


def test_a_renamed_label_keeps_what_was_learnt(summed_model):
    made, ids = maker(summed_model), np.array([7, 9])
    rows = made.rows(ids, TEXTS, added=False)
    assert rows.added.tolist() == [False, False]
    network = summed_model.network
    classifier, dual = network.head("classifier"), network.head("dual")
    assert torch.equal(rows.parts["classifier"]["vectors"], classifier.table[ids])
    assert torch.equal(rows.parts["classifier"]["bias"], classifier.bias[ids])
    expected = normalize(encoded(summed_model, TEXTS) + dual.table[ids], dim=1)
    torch.testing.assert_close(rows.parts["dual"]["vectors"], expected)


def test_labels_without_train_points_are_not_near(summed_model):
    from dataclasses import replace

    made = maker(summed_model)
    counts = summed_model.fitted.counts.copy()
    counts[5:] = 0
    few = LabelMaker(made.network, replace(made.fitted, counts=counts), made.side, made.texts)
    rows = few.rows(IDS, TEXTS, added=True).parts["classifier"]["free"]
    table = made.network.head("classifier").table[:5].detach()
    error = rows - (torch.linalg.lstsq(table.T, rows.T).solution.T @ table)
    assert error.abs().max() < 1e-4 * rows.abs().max() + 1e-6  # a mix of the five that have points
    assert set(few.rare.tolist()) <= set(range(5))


def test_every_head_returns_its_rows(fused_model):
    rows = maker(fused_model).rows(IDS, TEXTS, added=True)
    assert list(rows.parts) == fused_model.heads
    assert all(len(part) == 2 if part.ndim == 1 else part.shape[0] == 2 for parts in rows.parts.values()
               for part in parts.values())  # fmt: skip
