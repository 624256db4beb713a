"""Ensembles against a slow mean over all models, label by label."""

import numpy as np
import pytest
from scipy import sparse

from megalabel import Ensemble, load, train
from megalabel.data.dataset import Labels
from megalabel.errors import MegalabelError

SMALL = [
    "encoder.source=null", "encoder.options={dim: 16, words: 256, bigrams: 0, characters: 0}",
    "training.epochs=1", "batching.batch_size=64",
]  # fmt: skip


@pytest.fixture(scope="module")
def data():
    return load("synthetic:points=300,labels=24")


@pytest.fixture(scope="module")
def models(data):
    return [train("unidec-cpu", data, changes=SMALL, seed=seed) for seed in (0, 1, 2)]


def slow(models, text, by, depth, out=()):
    """Return the score of every label that some model lists."""
    total = {}
    for model in models:
        every = model.search([text], len(model.labels))
        ranking = [(int(label), float(score)) for label, score in zip(every.ids[0], every.scores[0], strict=True)]
        listed = dict([pair for pair in ranking if pair[0] not in out][:depth])
        places = {label: place for place, label in enumerate(listed, start=1)}
        for label in range(len(model.labels)):
            if by == "rank":
                value = (depth + 1 - places[label]) / depth if label in places else 0.0
            else:
                value = listed.get(label, min(listed.values()))
            total.setdefault(label, []).append((value, label in listed))
    return {
        label: sum(value for value, _ in values) / len(models)
        for label, values in total.items()
        if any(there for _, there in values)
    }


@pytest.mark.parametrize("by", ["rank", "score"])
@pytest.mark.parametrize("depth", [4, 24])
def test_the_mean_over_models(models, data, by, depth):
    texts = data.test.texts[:9]
    best = Ensemble(models, by, depth).search(texts, 4)
    for row, text in enumerate(texts):
        scores = slow(models, text, by, depth)
        expected = sorted(scores.items(), key=lambda pair: -pair[1])[:4]
        assert best.scores[row] == pytest.approx([score for _, score in expected], abs=1e-5)
        for label, score in zip(best.ids[row], best.scores[row], strict=True):
            assert scores[int(label)] == pytest.approx(score, abs=1e-5)


def test_excluded_pairs_are_not_listed(models, data):
    texts = data.test.texts[:3]
    out = sparse.csr_matrix((np.ones(6), ([0, 0, 1, 1, 2, 2], [0, 5, 1, 2, 7, 8])), shape=(3, 24))
    best = Ensemble(models, depth=6).search(texts, 6, exclude=out)
    for row, text in enumerate(texts):
        scores = slow(models, text, "rank", 6, out=set(out[row].indices.tolist()))
        for label, score in zip(best.ids[row], best.scores[row], strict=True):
            assert scores[int(label)] == pytest.approx(score, abs=1e-5)


def test_blocks_change_nothing(models, data, monkeypatch):
    ensemble = Ensemble(models)
    whole = ensemble.search(data.test.texts, 5, exclude=data.test.excluded())
    monkeypatch.setattr("megalabel.model.ensemble.BLOCK", 7)
    parts = ensemble.search(data.test.texts, 5, exclude=data.test.excluded())
    assert (whole.ids == parts.ids).all() and (whole.scores == parts.scores).all()
    assert ensemble.search([], 5).ids.shape == (0, 5)


def test_an_empty_text_has_no_labels(models, data):
    text = data.test.texts[0]
    for by in ("rank", "score"):
        empty, full, blank = Ensemble(models, by).predict(["", text, " \n"], 3)
        assert (empty, len(full), blank) == ([], 3, [])


def test_labels_in_another_order(models, data, tmp_path):
    models[1].save(tmp_path / "other")
    other = models[1].load(tmp_path / "other")
    expected = Ensemble(models[:2]).predict(data.test.texts[:5])
    reverse = list(reversed(range(24)))
    other.search = _permuted(other.search, reverse)
    other.labels = Labels([data.labels.texts[i] for i in reverse], [data.labels.uids[i] for i in reverse])
    actual = Ensemble([models[0], other]).predict(data.test.texts[:5])
    assert [[label.uid for label in row] for row in actual] == [[label.uid for label in row] for row in expected]


def _permuted(search, order):
    from megalabel.types import TopK

    def found(texts, k, **options):
        best = search(texts, k, **options)
        return TopK(np.argsort(order)[best.ids], best.scores)

    return found


def test_saved_runs_are_evaluated_together(models, data, tmp_path):
    for number, model in enumerate(models):
        model.save(tmp_path / str(number))
    loaded = Ensemble.load([tmp_path / str(number) for number in range(3)])
    report = loaded.evaluate(data)
    assert report.metrics == Ensemble(models).evaluate(data).metrics
    assert loaded.heads == ["dual", "classifier"]
    alone = [model.evaluate(data).metrics["P@1"] for model in models]
    assert report.metrics["P@1"] >= min(alone)


def test_what_cannot_be_put_together(models, data, tmp_path):
    stranger = train("depsl-cpu", load("synthetic:points=200,labels=9"), changes=SMALL)
    stranger.save(tmp_path / "other")
    models[0].save(tmp_path / "first")
    with pytest.raises(MegalabelError, match="its labels are not those of"):
        Ensemble.load([tmp_path / "first", tmp_path / "other"])
    with pytest.raises(MegalabelError, match="these models have other labels"):
        Ensemble([models[0], stranger]).search(["text"], 1)
    with pytest.raises(MegalabelError, match="at least two"):
        Ensemble(models[:1]).search(["text"], 1)
    with pytest.raises(MegalabelError, match="unknown rule 'ranks'"):
        Ensemble(models, "ranks").search(["text"], 1)
    with pytest.raises(MegalabelError, match="not one text"):
        Ensemble(models).search("text", 1)
