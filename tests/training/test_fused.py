"""Runs with heads that are fitted after training, put together by fusion."""

import json

import numpy as np
import pytest

import megalabel as ml
from megalabel.errors import MegalabelError


@pytest.fixture(scope="module")
def data(served_data):
    return ml.load(served_data)


@pytest.fixture(scope="module")
def model(fused_run):
    return ml.Model.load(fused_run)


@pytest.fixture(scope="module")
def trained(data, small, tmp_path_factory):
    """A fused run without a refit, watched on 20 validation rows, with its model as it came out of the training."""
    folder = tmp_path_factory.mktemp("trained") / "run"
    changes = [
        *small,
        "ngrams={words: 1024, bigrams: 1024, characters: 0}",
        "heads.near={kind: memory, labels: self}",
        "heads.space={kind: memory, features: classifier}",
        "heads.linear={kind: linear, labels: gandalf, max_targets: 5}",
        "predict={weights: fusion, candidates: 20}",
        "training.evaluate_on=20",
    ]
    lines = []
    return ml.train("unidec-cpu", data, folder, changes=changes, say=lines.append), folder, lines


def test_every_head_and_all_together_learn(trained, data):
    model, _, _ = trained
    assert model.heads == ["dual", "classifier", "near", "space", "linear"]
    found = {heads: model.evaluate(data, heads=heads).metrics for heads in ("all", *model.heads)}
    assert all(metrics["P@1"] > 20 for metrics in found.values())
    assert found["all"]["nDCG@5"] >= max(found[name]["nDCG@5"] for name in model.heads) - 1


def test_scores_are_probabilities(trained, data):
    model, _, _ = trained
    best = model.search(data.test.texts, 5)
    assert np.all((best.scores > 0) & (best.scores < 1))
    truth = data.test.targets.toarray()[np.arange(len(data.test))[:, None], best.ids]
    assert abs(best.scores.mean() - truth.mean()) < 0.1


def test_saved_and_loaded_it_says_the_same(trained, data, tmp_path):
    model, folder, _ = trained
    model.save(tmp_path / "copy")
    for place in (folder, tmp_path / "copy"):
        again = ml.Model.load(place)
        for heads in ("all", *model.heads):
            one, two = (each.search(data.test.texts[:40], 7, heads=heads) for each in (model, again))
            assert np.array_equal(one.ids, two.ids)
            assert np.array_equal(one.scores, two.scores)


def test_excluded_pairs_are_never_found(trained, data):
    model, _, _ = trained
    exclude = data.test.targets.astype(np.float32)
    found = model.search(data.test.texts, 5, exclude=exclude)
    assert not any(exclude[row, label] for row in range(len(data.test)) for label in found.ids[row] if label >= 0)


def test_refit_fits_the_heads_anew(model, trained, data):
    assert model.heads == ["dual", "classifier", "memory", "linear", "label_words", "query_words", "vectors"]
    assert model.fitted.counts.sum() == data.train.targets.nnz
    rows = [memory.targets_.shape[0] for memory in (model.fitted.heads["memory"], trained[0].fitted.heads["near"])]
    assert rows[0] == len(data.train) + len(data.labels) > rows[1]  # with the validation rows, and without
    assert model.evaluate(data).metrics["P@1"] > 60


def test_rare_labels_can_be_favoured(trained, data):
    model, folder, _ = trained
    plain = model.evaluate(data).metrics
    again = ml.Model.load(folder, tail=1.0)
    tail = again.evaluate(data).metrics
    assert not np.array_equal(again.search(data.test.texts, 5).ids, model.search(data.test.texts, 5).ids)
    assert tail["PSP@5"] >= plain["PSP@5"] - 0.5
    assert tail["P@1"] <= plain["P@1"] + 0.5


def test_mistakes(model, fused, fused_run, data):
    with pytest.raises(MegalabelError, match="0 to 1"):
        ml.Model.load(fused_run, tail=2.0)
    with pytest.raises(MegalabelError, match="no vectors"):
        model.encode(["a text"], heads="linear")
    with pytest.raises(MegalabelError, match="linear"):
        model.predict(["a text"], heads="liner")
    for change, words in {
        "predict={weights: equal}": "the head 'memory' needs predict.weights: fusion",
        "fitted={near: {kind: memory}}": "'fitted' is now called 'heads'",
        "heads.memory.features=dense": "choose one of: ngrams, dual, classifier",
        "heads.memory.C=2.0": r"unknown key 'heads\.memory\.C'",
        "heads.memory.kind=memry": "did you mean 'memory'",
    }.items():
        with pytest.raises(MegalabelError, match=words):
            ml.train("auto", data, changes=[*fused, change])


def test_validation_can_be_watched_on_some_rows(trained, fused_run):
    few, folder, lines = trained
    logs = [(place / "metrics.jsonl").read_text() for place in (folder, fused_run)]
    watched, whole = ([json.loads(line)["val"]["P@1"] for line in log.splitlines() if '"val"' in line] for log in logs)
    assert [round(value / 5, 6) % 1 for value in watched] == [0, 0]  # twentieths
    assert any(round(value / 5, 6) % 1 for value in whole)  # fortieths
    assert few.fusion.names == tuple(few.heads)
    assert "fusion of dual, classifier, near, space, linear fitted on 40 validation texts" in lines  # on all of them
