"""Labels added, removed and renamed after training: immediate, for every head, and kept by save and load."""

import threading
from copy import deepcopy

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import sparse

import megalabel as ml
from megalabel.errors import DataError, SettingError

NEW = ["zygote quokka", "umbrella velvet xylem", "wombat"]


def heads_of(model):
    return ["all", *model.heads]


def same(one, two, tolerance=1e-5):
    assert np.array_equal(one.ids, two.ids)
    real = one.ids >= 0
    np.testing.assert_allclose(one.scores[real], two.scores[real], atol=tolerance, rtol=tolerance)


def test_a_new_label_is_predicted_by_its_text_and_others_do_not_change(model, data):
    texts = data.test.texts[:20]
    words = sorted({word for text in data.train.texts for word in text.split()})
    new = [" ".join(words[start : start + 4]) for start in (0, len(words) // 2, len(words) - 4)]
    before = {name: answers.score(np.tile(np.arange(60), (20, 1))) for name, answers in model.answers(texts).items()}
    uids = model.add_labels(new, ["z", "u", "w"])
    assert uids == ["z", "u", "w"]
    assert len(model.labels) == 63
    for head in heads_of(model):
        if head not in ("classifier", "vectors", "all"):  # a free vector knows what its neighbours know
            assert [row[0].uid for row in model.predict(new, 1, heads=head)] == uids, head
    after = {name: answers.score(np.tile(np.arange(60), (20, 1))) for name, answers in model.answers(texts).items()}
    for name, scores in before.items():
        if name not in ("memory", "vectors"):  # a new row of a memory may take the place of another
            np.testing.assert_allclose(scores, after[name], atol=1e-6)


def test_uids_are_generated_by_default(model):
    assert model.add_labels(["one"]) == ["added-60"]
    model.add_labels(["two"], ["added-62"])
    assert model.add_labels(["three", "four"]) == ["added-62+", "added-63"]
    assert model.add_labels([]) == []


def test_a_removed_label_is_not_predicted_and_ids_do_not_change(model, data):
    actual = model.search(data.test.texts, 5)
    gone = int(actual.ids[0, 0])
    model.add_labels(NEW)
    model.remove_labels([model.labels.uids[gone], "added-61"])
    for head in heads_of(model):
        after = model.search([*data.test.texts, *NEW], 63, heads=head).ids
        assert not np.isin(after, [gone, 61]).any(), head
        assert np.isin(60, after)
    uid = model.labels.uids[gone]
    with pytest.raises(DataError, match="was removed"):
        model.remove_labels([uid])
    with pytest.raises(DataError, match="belonged to a label that was removed"):
        model.add_labels(["again"], [uid])
    assert len(model.labels) == 63


def test_removing_all_added_labels_restores_the_predictions(model, data):
    texts, exclude = data.test.texts[:30], data.test.excluded()[:30]
    before = {head: model.search(texts, 7, heads=head, exclude=exclude) for head in heads_of(model)}
    model.remove_labels(model.add_labels(NEW))
    wider = sparse.csr_matrix((exclude.data, exclude.indices, exclude.indptr), shape=(30, 63))
    for head, actual in before.items():
        same(actual, model.search(texts, 7, heads=head, exclude=wider), 1e-6)


def test_a_renamed_label_is_predicted_by_its_new_text(model, data):
    old = model.labels.texts[7]
    kept = [name for name in model.heads if name in ("classifier", "memory", "vectors", "linear")]
    all_ids = np.arange(60)[None]
    before = {name: model.answers([old])[name].score(all_ids) for name in kept}
    model.rename_label(model.labels.uids[7], NEW[0])
    assert model.labels.texts[7] == NEW[0]
    assert model.predict([NEW[0]], 1, heads="dual")[0][0].id == 7
    for name in kept:  # what was learnt from points stays
        np.testing.assert_allclose(model.answers([old])[name].score(all_ids), before[name], atol=1e-6)
    if "label_words" in model.heads:
        assert model.predict([NEW[0]], 1, heads="label_words")[0][0].id == 7
        assert model.answers([old])["label_words"].score(np.array([[7]]))[0, 0] == 0
    model.add_labels([old], ["copy"])
    model.rename_label("copy", NEW[1])
    assert model.predict([NEW[1]], 1, heads="dual")[0][0].uid == "copy"


def changed(model):
    model.add_labels(NEW, ["z", "u", "w"])
    model.remove_labels(["u", model.labels.uids[3]])
    model.rename_label(model.labels.uids[7], "a fresh name")
    model.rename_label("w", "wallaby wombat")
    model.add_labels(["late comer"])


def test_save_and_load_keep_the_scores_of_every_head(model, data, tmp_path):
    changed(model)
    model.save(tmp_path / "copy")
    again = ml.Model.load(tmp_path / "copy")
    assert list(again.labels.uids) == list(model.labels.uids)
    assert list(again.labels.texts) == list(model.labels.texts)
    assert again.state.removed.tolist() == model.state.removed.tolist() == [3, 61]
    texts = [*data.test.texts[:40], *NEW, "wallaby", "a fresh name", "late comer"]
    for head in heads_of(model):
        same(model.search(texts, 8, heads=head), again.search(texts, 8, heads=head))
    again.add_labels(["one more"])  # and a second time
    again.save(tmp_path / "copy", overwrite=True)
    third = ml.Model.load(tmp_path / "copy")
    for head in heads_of(model):
        same(again.search(texts, 8, heads=head), third.search(texts, 8, heads=head))


def test_excluded_pairs_are_removed_before_the_cut(model, data):
    changed(model)
    texts = [*data.test.texts[:10], *NEW]
    for head in heads_of(model):
        actual = model.search(texts, 3, heads=head)
        real = actual.ids[:, 0] >= 0
        pairs = np.flatnonzero(real), actual.ids[real, 0]
        exclude = sparse.csr_matrix((np.ones(real.sum(), np.float32), pairs), shape=(len(texts), 64))
        again = model.search(texts, 2, heads=head, exclude=exclude)
        if head != "all":  # candidates follow exclude, and margins follow candidates
            assert np.array_equal(again.ids[real], actual.ids[real, 1:]), head
        assert not (again.ids[real, :] == actual.ids[real, :1]).any()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda model: model.add_labels("one"), "give a list of texts"),
        (lambda model: model.add_labels(["good", "  "]), "must have a text"),
        (lambda model: model.add_labels([3]), "must have a text"),
        (lambda model: model.add_labels(["a", "b"], ["x"]), "1 uids for 2 labels"),
        (lambda model: model.add_labels(["a", "b"], ["x", "x"]), "duplicate uid"),
        (lambda model: model.add_labels(["a"], [model.labels.uids[0]]), "duplicate uid"),
        (lambda model: model.add_labels(["a"], [" "]), "a uid must be a text"),
        (lambda model: model.remove_labels("x"), "give a list of uids"),
        (lambda model: model.remove_labels([model.labels.uids[0], "nobody"]), "no label has the uid 'nobody'"),
        (lambda model: model.remove_labels([model.labels.uids[0]] * 2), "duplicate uid"),
        (lambda model: model.remove_labels(model.labels.uids), "remove all labels"),
        (lambda model: model.rename_label("nobody", "text"), "no label has the uid"),
        (lambda model: model.rename_label(model.labels.uids[0], ""), "must have a text"),
    ],
)
def test_invalid_changes_are_refused_and_change_nothing(summed, change, message):
    before = summed.state
    with pytest.raises((DataError, SettingError), match=message):
        change(summed)
    assert summed.state is before


@pytest.fixture(scope="module")
def summed(summed_run):
    return ml.Model.load(summed_run)


def test_readers_see_the_labels_before_or_after(fused_run):
    model = ml.Model.load(fused_run)
    model.predict(NEW)
    seen, stop = [], threading.Event()

    def read():
        while not stop.is_set():
            state = model.state
            rows = model.predict(NEW, 60)
            seen.append((rows, len(state.labels)))

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    try:
        for turn in range(12):  # three labels come and go together
            uids = model.add_labels(NEW, [f"{turn}-{place}" for place in range(3)])
            model.remove_labels(uids)
    finally:
        stop.set()
        for reader in readers:
            reader.join()
    assert len(seen) >= 3
    for rows, labels in seen:
        assert (labels - 60) % 3 == 0
        for row in rows:
            added = {p.uid.split("-")[0] for p in row if p.id >= 60}
            assert len(added) <= 1  # one turn at a time
            for p in row:
                if p.id >= 60:
                    assert p.text == NEW[(p.id - 60) % 3]
                    assert p.uid == f"{(p.id - 60) // 3}-{(p.id - 60) % 3}"


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(st.tuples(st.sampled_from(["add", "remove", "rename"]), st.integers(0, 99)), max_size=8))
def test_any_order_of_changes_keeps_the_remaining_labels(summed, steps):
    model = ml.Model(summed.recipe, summed.network, summed.labels, summed.weights, summed.stats)
    texts, gone = dict(enumerate(model.labels.texts)), set()
    for turn, (kind, number) in enumerate(steps):
        alive = sorted(set(texts) - gone)
        label = alive[number % len(alive)]
        if kind == "add":
            model.add_labels([f"new {number} {turn}"], [f"u{turn}"])
            texts[len(texts)] = f"new {number} {turn}"
        elif kind == "remove":
            model.remove_labels([model.labels.uids[label]])
            gone.add(label)
        else:
            texts[label] = f"name {number} {turn}"
            model.rename_label(model.labels.uids[label], texts[label])
    actual = model.predict(["some text"], 1000)[0]
    assert sorted(p.id for p in actual) == sorted(set(texts) - gone)
    assert {p.id: p.text for p in actual} == {label: texts[label] for label in texts if label not in gone}


def test_the_trained_state_is_shared_and_never_changed(model):
    side = deepcopy({name: part.vectors for name, part in model.label_side().items()})
    changed(model)
    assert all((model.label_side()[name].vectors == vectors).all() for name, vectors in side.items())


def test_labels_can_be_shown_by_other_names(model, data):
    before = model.search(data.test.texts[:5], 3)
    model.labels = ml.Labels([f"<{text}>" for text in model.labels.texts], model.labels.uids)
    assert np.array_equal(model.search(data.test.texts[:5], 3).ids, before.ids)
    assert all(p.text.startswith("<") for p in model.predict(data.test.texts[:1])[0])
    with pytest.raises(DataError, match="1 label in place of 60"):
        model.labels = ml.Labels(["one"], ["one"])


def test_a_new_label_has_its_text_as_uid_where_the_others_do(model):
    assert model.add_labels(["plain text"]) == ["added-60"]
    model.labels = ml.data.dataset.Labels(model.labels.texts, [*model.labels.texts[:-2], "other", "added-60"])
    known = model.labels.texts[0]
    assert model.add_labels(["gift cards", known, "gift cards", "two\nlines"]) == [
        "gift cards", "added-62", "added-63", "added-64",
    ]  # fmt: skip
    model.rename_label("gift cards", "vouchers")
    model.remove_labels(["added-63"])
    assert model.add_labels(["gift cards", "added-63"]) == ["added-65", "added-66"]
