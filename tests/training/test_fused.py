"""Runs with heads that are fitted after training, put together by fusion."""

import json

import numpy as np
import pytest

import megalabel as ml
from megalabel.errors import MegalabelError

SMALL = [
    "encoder.source=null",
    "encoder.options={dim: 32, words: 1024, bigrams: 0, characters: 0}",
    "ngrams={words: 1024, bigrams: 1024, characters: 0}",
    "batching.batch_size=64",
    "batching.refresh={start: 1, every: 2}",
    "training.epochs=2",
    "fitted={near: {kind: memory, labels: self}, space: {kind: memory, of: classifier}, "
    "linear: {kind: linear, labels: gandalf, most: 5}}",
    "predict={weights: fusion, candidates: 20}",
]


@pytest.fixture(scope="module")
def data():
    return ml.load("synthetic:points=700,labels=60,seed=5")


@pytest.fixture(scope="module")
def run(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("fused") / "run"
    return ml.train("unidec-cpu", data, folder, changes=SMALL), folder


def test_every_head_and_all_together_learn(run, data):
    model, _ = run
    assert model.heads == ["dual", "classifier", "near", "space", "linear"]
    found = {heads: model.evaluate(data, heads=heads).metrics for heads in ("all", *model.heads)}
    assert all(metrics["P@1"] > 20 for metrics in found.values())
    assert found["all"]["nDCG@5"] >= max(found[name]["nDCG@5"] for name in model.heads) - 1


def test_scores_are_probabilities(run, data):
    model, _ = run
    best = model.search(data.test.texts, 5)
    assert np.all((best.scores > 0) & (best.scores < 1))
    truth = data.test.targets.toarray()[np.arange(len(data.test))[:, None], best.ids]
    assert abs(best.scores.mean() - truth.mean()) < 0.1


def test_saved_and_loaded_it_says_the_same(run, data, tmp_path):
    model, folder = run
    model.save(tmp_path / "copy")
    for place in (folder, tmp_path / "copy"):
        again = ml.Model.load(place)
        for heads in ("all", *model.heads):
            one, two = (m.search(data.test.texts[:40], 7, heads=heads) for m in (model, again))
            assert np.array_equal(one.ids, two.ids)
            assert np.array_equal(one.scores, two.scores)


def test_excluded_pairs_are_never_found(run, data):
    model, _ = run
    exclude = data.test.targets.astype(np.float32)
    found = model.search(data.test.texts, 5, exclude=exclude)
    assert not any(exclude[row, label] for row in range(len(data.test)) for label in found.ids[row] if label >= 0)


def test_refit_fits_the_heads_anew(data):
    model = ml.train("unidec-cpu", data, changes=[*SMALL, "training.refit=true"])
    assert model.fitted.counts.sum() == data.train.targets.nnz
    assert model.evaluate(data).metrics["P@1"] > 60


def test_rare_labels_can_be_favoured(run, data):
    model, folder = run
    plain = model.evaluate(data).metrics
    again = ml.Model.load(folder, tail=1.0)
    tail = again.evaluate(data).metrics
    assert not np.array_equal(again.search(data.test.texts, 5).ids, model.search(data.test.texts, 5).ids)
    assert tail["PSP@5"] >= plain["PSP@5"] - 0.5
    assert tail["P@1"] <= plain["P@1"] + 0.5


def test_mistakes(run, data):
    model, folder = run
    with pytest.raises(MegalabelError, match="0 to 1"):
        ml.Model.load(folder, tail=2.0)
    with pytest.raises(MegalabelError, match="no vectors"):
        model.encode(["a text"], heads="linear")
    with pytest.raises(MegalabelError, match="linear"):
        model.predict(["a text"], heads="liner")
    for change, words in {
        "predict.weights=equal": "fusion",
        "fitted.dual={kind: memory}": "name of its own",
        "fitted.near.of=dense": "ngrams or one of the heads",
        "fitted.near.C=2.0": "memory has no setting C",
        "fitted.near.kind=memry": "memory",
    }.items():
        with pytest.raises(MegalabelError, match=words):
            ml.train("unidec-cpu", data, changes=[*SMALL, change])


def test_validation_can_be_watched_on_some_rows(data, tmp_path):
    changes = [*SMALL, "training.evaluate_on=20"]
    few, many = (
        ml.train("unidec-cpu", data, tmp_path / name, changes=wanted)
        for name, wanted in (("few", changes), ("many", SMALL))
    )
    logs = [(tmp_path / name / "metrics.jsonl").read_text() for name in ("few", "many")]
    values = [[json.loads(line)["val"]["P@1"] for line in log.splitlines() if '"val"' in line] for log in logs]
    assert values[0] != values[1]
    assert all(
        value % 5 == pytest.approx(0, abs=1e-6) or value % 5 == pytest.approx(5, abs=1e-6) for value in values[0]
    )  # twentieths
    assert few.fusion.names == many.fusion.names  # the fusion has seen them all
