"""Runs with fitted heads and fusion."""

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse

import megalabel as ml
from megalabel.errors import MegalabelError
from megalabel.fusion import TreeFusion
from megalabel.index import exact
from megalabel.metrics import Thresholds
from megalabel.model.hashes import seal_of


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


@pytest.fixture(scope="module")
def by_tree(data, small, tmp_path_factory):
    """A run of two heads whose scores are fused by a decision tree."""
    folder = tmp_path_factory.mktemp("tree") / "run"
    changes = [*small, "training.epochs=4", "predict={weights: tree, beta: 0.5, candidates: 20}"]
    return ml.train("unidec-cpu", data, folder, changes=changes), folder


def test_a_tree_fuses_two_heads(by_tree, data):
    model, folder = by_tree
    assert isinstance(model.fusion, TreeFusion)
    metrics = {heads: model.evaluate(data, heads=heads).metrics["P@1"] for heads in ("all", *model.heads)}
    assert metrics["all"] >= min(metrics.values()) > 20
    again = ml.Model.load(folder)
    one, two = (each.search(data.test.texts[:40], 7) for each in (model, again))
    assert np.array_equal(one.ids, two.ids) and np.array_equal(one.scores, two.scores)
    assert np.all((one.scores > 0) & (one.scores < 1))
    exclude = data.test.targets.astype(np.float32)
    actual = again.search(data.test.texts, 5, exclude=exclude)
    assert not any(exclude[row, label] for row in range(len(data.test)) for label in actual.ids[row] if label >= 0)


def test_a_tree_explains_and_takes_new_labels(by_tree, data):
    _, folder = by_tree
    model = ml.Model.load(folder)
    why = model.explain(data.test.texts[0])
    assert why.rest_by == "tree" and 0 <= why.rest <= 0.5
    assert sum(part.adds for part in why.heads) + why.rest == pytest.approx(why.total, abs=1e-6)
    assert [part.adds for part in why.heads] == pytest.approx([0.5 * why.heads[0].score, why.heads[1].score])
    assert why.probability == pytest.approx(model.search([data.test.texts[0]], 1).scores[0, 0], rel=1e-5)
    text = "a label nobody trained on"
    model.add_labels([text], ["new"])
    assert "new" in [label.uid for label in model.predict([text], k=5)[0]]
    assert model.explain(text, "new").points == 0


def test_a_text_alone_gets_the_same_labels_as_among_others(model, data, monkeypatch):
    monkeypatch.setattr(exact, "LEAST", 1)
    texts = [*data.test.texts[:20], "", "a text of other words"]
    together = model.search(texts, 10)
    alone = [model.search([text], 10) for text in texts]
    assert np.array_equal(np.concatenate([top.ids for top in alone]), together.ids)
    np.testing.assert_allclose(np.concatenate([top.scores for top in alone]), together.scores, rtol=1e-6)


def test_every_head_and_all_together_learn(trained, data):
    model, _, _ = trained
    assert model.heads == ["dual", "classifier", "near", "space", "linear"]
    actual = {heads: model.evaluate(data, heads=heads).metrics for heads in ("all", *model.heads)}
    assert all(metrics["P@1"] > 20 for metrics in actual.values())
    assert actual["all"]["nDCG@5"] >= max(actual[name]["nDCG@5"] for name in model.heads) - 1


def test_as_many_labels_as_asked_for(model, data):
    """Heads propose 20 labels each; what k asks for beyond that follows, and the order does not depend on k."""
    texts = data.test.texts[:7]
    for tail in (0.0, 0.5):
        every = model.search(texts, 60, tail=tail)
        assert np.array_equal(np.sort(every.ids, axis=1), np.tile(np.arange(60), (7, 1)))
        assert np.all(np.diff(every.scores, axis=1) <= 0) and np.all(every.scores > 0)
        for k in (1, 20, 35, 59):
            some = model.search(texts, k, tail=tail)
            assert np.array_equal(some.ids, every.ids[:, :k])
            assert np.allclose(some.scores, every.scores[:, :k])
    assert [len(best) for best in model.predict(texts, k=1000)] == [60] * 7
    top, _ = model.search_with_head_scores(texts, 60)
    assert np.array_equal(top.ids, model.search(texts, 60).ids)


def test_excluded_and_removed_labels_stay_out_however_many_are_asked_for(fused_run, data):
    model = ml.Model.load(fused_run)
    model.remove_labels([model.labels.uids[3]])
    (added,) = model.add_labels(["a label nobody trained on"])
    exclude = sparse.csr_matrix((np.ones(2), ([0, 0], [5, 7])), shape=(2, 61))
    ids = model.search(data.test.texts[:2], 61, exclude=exclude).ids
    assert sorted(set(range(61)) - set(ids[0].tolist())) == [3, 5, 7]
    assert sorted(set(range(61)) - set(ids[1].tolist())) == [3]
    assert (ids >= 0).sum(axis=1).tolist() == [58, 60]
    assert added in [label.uid for label in model.predict(data.test.texts[:1], k=61)[0]]


def test_scores_are_probabilities(trained, data):
    model, _, _ = trained
    best = model.search(data.test.texts, 5)
    assert np.all((best.scores > 0) & (best.scores < 1))
    truth = data.test.targets.toarray()[np.arange(len(data.test))[:, None], best.ids]
    assert abs(best.scores.mean() - truth.mean()) < 0.1


def test_save_and_load_keep_the_predictions(trained, data, tmp_path):
    model, folder, _ = trained
    model.save(tmp_path / "copy")
    for place in (folder, tmp_path / "copy"):
        again = ml.Model.load(place)
        for heads in ("all", *model.heads):
            one, two = (each.search(data.test.texts[:40], 7, heads=heads) for each in (model, again))
            assert np.array_equal(one.ids, two.ids)
            assert np.array_equal(one.scores, two.scores)


def test_excluded_pairs_are_never_predicted(trained, data):
    model, _, _ = trained
    exclude = data.test.targets.astype(np.float32)
    actual = model.search(data.test.texts, 5, exclude=exclude)
    assert not any(exclude[row, label] for row in range(len(data.test)) for label in actual.ids[row] if label >= 0)


def test_refit_fits_the_heads_again(model, trained, data):
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


def test_training_chooses_a_threshold_and_the_model_keeps_it(model, data, fused_run, tmp_path):
    chosen = model.thresholds.choose()
    assert chosen.rows == 40 and 0 < chosen.value < 1
    texts = data.test.texts[:30]
    top = model.search(texts, 20)
    expected = [ids[scores >= chosen.value].tolist() for ids, scores in zip(top.ids, top.scores, strict=True)]
    assert [[label.id for label in row] for row in model.predict(texts)] == expected
    assert {len(row) for row in model.predict(texts, k=4)} == {4}
    assert {len(row) for row in model.predict(texts, heads="dual")} == {5}
    model.save(tmp_path / "again")
    again = ml.Model.load(tmp_path / "again")
    assert again.thresholds == model.thresholds and again.predict(texts) == model.predict(texts)
    report = model.evaluate(data)
    assert report.to_dict()["threshold"]["goal"] == "micro-f1" and "micro F1" in report.table()
    assert model.evaluate(data, heads="dual").sets is None


def test_the_threshold_is_for_live_labels_as_well(fused_run, data):
    model = ml.Model.load(fused_run)
    texts = data.test.texts[:30]
    best = next(row[0] for row in model.predict(texts) if row)
    model.remove_labels([best.uid])
    assert best.uid not in {label.uid for row in model.predict(texts) for label in row}
    (uid,) = model.add_labels(["a label nobody trained on"])
    model.thresholds = Thresholds(40, tuple(replace(row, threshold=0.0) for row in model.thresholds.curve))
    assert any(label.uid == uid for label in model.predict(["a label nobody trained on"])[0])


def test_a_model_saved_without_a_threshold_is_read_and_returns_five_labels(model, data, tmp_path):
    model.save(tmp_path / "old")
    card = json.loads((tmp_path / "old" / "model.json").read_text())
    del card["threshold"], card["seal"]
    (tmp_path / "old" / "model.json").write_text(json.dumps({**card, "seal": seal_of(card)}))
    old = ml.Model.load(tmp_path / "old")
    assert old.thresholds is None and old.evaluate(data).to_dict()["threshold"] is None
    assert old.predict(data.test.texts[:3]) == model.predict(data.test.texts[:3], k=5)
