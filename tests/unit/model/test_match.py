"""Labels of data and model are matched by uid; what does not match is counted and named."""

import numpy as np
import pytest

from megalabel import load, train
from megalabel.data.dataset import Labels
from megalabel.data.formats import Options
from megalabel.errors import DataError


@pytest.fixture(scope="module")
def data():
    return load("synthetic:points=300,labels=40,seed=5")


@pytest.fixture
def model(data, small, tmp_path_factory):
    return train("unidec-cpu", data, changes=small)


def permuted(data, order):
    """Return the data with its labels in another order, or only some of them."""
    labels = Labels([data.labels.texts[i] for i in order], [data.labels.uids[i] for i in order])
    parts = {name: type(part)(part.texts, part.targets[:, order], part.uids) for name, part in data.splits.items()}
    return data.replace(labels=labels, **parts, counts=data.counts[order])


def test_the_order_of_labels_does_not_matter(model, data):
    before = model.evaluate(data).metrics
    order = np.random.default_rng(0).permutation(40)
    assert model.evaluate(permuted(data, order)).metrics == pytest.approx(before)


def test_added_labels_change_nothing(model, data):
    before = model.evaluate(data).to_dict()
    model.add_labels(["word", data.test.texts[0]])
    matched = model.match(data)
    assert matched.notes == [
        "synthetic: 2 labels were added to the model later and left out: the data has no such label"
    ]
    assert model.evaluate(data).to_dict() == before
    model.remove_labels(["added-40", "added-41"])
    assert model.match(data).notes == []
    assert model.evaluate(data).to_dict() == before


def test_a_removed_label_is_left_out(model, data):
    gone = int(data.test.targets.indices[0])
    model.remove_labels([data.labels.uids[gone]])
    report = model.evaluate(data)
    keep = np.setdiff1d(np.arange(40), [gone])
    assert report.labels == 39
    assert "1 label was removed from the model and left out" in model.match(data).notes[0]
    best = model.search(data.test.texts, 1).ids[:, 0]
    truth = data.test.targets[:, keep].getnnz(axis=1) > 0
    hits = np.asarray(data.test.targets[np.arange(60), best]).ravel() > 0
    assert report.metrics["P@1"] == pytest.approx(100 * hits[truth].mean())


def test_unknown_labels_count_as_missed_and_are_named(model, data):
    other = list(data.labels.uids)
    new = int(data.test.targets.indices[0])
    other[new] = "never seen"
    changed = data.replace(labels=Labels(data.labels.texts, other))
    matched = model.match(changed)
    assert matched.unknown == [data.labels.texts[new]]
    rows = data.test.targets[:, [new]].nnz
    assert f"1 label is unknown to the model, missed in {rows} of 60 rows" in matched.notes[0]
    best = model.search(data.test.texts, 1).ids[:, 0]
    hits = (np.asarray(data.test.targets[np.arange(60), best]).ravel() > 0) & (best != new)
    assert model.evaluate(changed).metrics["P@1"] == pytest.approx(100 * hits.mean())


def test_other_labels_are_refused(model, data):
    none = data.replace(labels=Labels(data.labels.texts, [f"x{i}" for i in range(40)]))
    with pytest.raises(DataError, match="none of its 40 labels"):
        model.evaluate(none)
    texts = data.replace(labels=Labels([f"words {i}" for i in range(40)], data.labels.uids))
    with pytest.raises(DataError, match="only 0 of 40 labels"):
        model.evaluate(texts)


def test_all_rows_of_a_table_are_test_rows(model, data, tmp_path):
    table = tmp_path / "fresh.csv"
    rows = [
        (text.replace(",", " "), ";".join(data.labels.texts[i] for i in data.test.targets[row].indices))
        for row, text in enumerate(data.test.texts)
    ]
    table.write_text("text,labels\n" + "".join(f'{text},"{labels}"\n' for text, labels in rows))
    fresh = load(table, options=Options(rows="test", known=model.labels))
    assert (len(fresh.test), list(fresh.splits), fresh.points) == (60, ["test"], 0)
    # names are texts here, and the model knows the frequencies
    assert model.evaluate(fresh).metrics == pytest.approx(model.evaluate(data.test).metrics)
    with pytest.raises(DataError, match="has no train rows"):
        train("unidec-cpu", fresh)
    with pytest.raises(DataError, match="choose one of: test"):
        fresh.split("train")


def test_training_texts_in_a_table_are_counted(model, data, tmp_path):
    table = tmp_path / "fresh.csv"
    label = data.labels.texts[0]
    table.write_text(f'text,labels\n"{data.train.texts[0]}",{label}\nsomething new,{label}\n')
    matched = model.match(load(table, options=Options(rows="test", known=model.labels)))
    assert any("1 of 2 texts are training texts" in line for line in matched.notes)
