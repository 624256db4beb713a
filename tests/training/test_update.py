"""A trained model learns from new rows and corrections."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse

import megalabel as ml
from megalabel.data.dataset import Dataset
from megalabel.errors import DataError, SettingError
from megalabel.updater import HISTORY, read_history


@pytest.fixture(scope="module")
def data(served_data):
    return ml.load(served_data)


@pytest.fixture
def summed(summed_run, tmp_path):
    return shutil.copytree(summed_run, tmp_path / "run")


@pytest.fixture
def whole(fused_run, tmp_path):
    return shutil.copytree(fused_run, tmp_path / "run")


def new_rows(data, count, corrected=0):
    """Rows of the data under new texts; the first ones are known rows that have only the label 7."""
    train = data.train.rows(np.arange(count))
    texts = [text if row < corrected else f"quite new {text}" for row, text in enumerate(train.texts)]
    targets = train.targets.tolil()
    for row in range(corrected):
        targets[row] = 0
        targets[row, 7] = 1
    targets = sparse.csr_matrix(targets, dtype=np.float32)
    targets.eliminate_zeros()
    return Dataset(replace(train, texts=texts, targets=targets), data.test, data.labels, name="more")


def test_new_rows_and_corrections_are_learnt(summed, data):
    lines, before = [], ml.Model.load(summed)
    rows = new_rows(data, 40, corrected=3)
    model = ml.update(summed, rows, epochs=1, say=lines.append)
    assert "more: 37 new texts, 3 corrected, 0 known already" in lines
    train = model.train_rows
    assert len(train.texts) == len(before.train_rows.texts) + 37
    for row in range(3):
        (place,) = (i for i, text in enumerate(train.texts) if text == data.train.texts[row])
        assert train.targets[place].indices.tolist() == [7]
    assert model.stats.points == before.stats.points + 37
    assert model.stats.counts.sum() == train.targets.nnz
    loaded = ml.Model.load(summed)
    assert np.array_equal(loaded.search(data.test.texts, 5).ids, model.search(data.test.texts, 5).ids)
    (line,) = read_history(summed)
    assert line["rows"] == {"new": 37, "corrected": 3, "all": len(train.texts)}
    assert set(line["validation"]["before"]) == set(line["validation"]["after"])
    assert line["validation"]["rows"] == len(train.held)
    again = ml.update(summed, new_rows(data, 60, corrected=3), epochs=1, validation=0)
    assert len(again.train_rows.texts) == len(train.texts) + 20
    assert len(read_history(summed)) == 2


def test_every_kind_of_head_learns(whole, data):
    """A text that was corrected, and one that was held out for validation at first, are both remembered."""
    lines = []
    model = ml.update(whole, new_rows(data, 60, corrected=2), epochs=1, seed=1, say=lines.append)
    assert "learning from the 17 validation texts too" in lines
    assert any(line.startswith("17 validation texts are too few to combine") for line in lines)
    corrected = data.train.texts[0]
    for head in ("memory", "linear"):
        assert model.predict([corrected], k=1, heads=head)[0][0].id == 7, head
    texts = [f"quite new {text}" for text in data.train.texts[2:60]]
    best = model.search(texts, 1, heads="memory").ids[:, 0]
    assert np.mean([data.train.targets[row + 2, label] > 0 for row, label in enumerate(best)]) > 0.9
    assert model.heads == ml.Model.load(whole).heads


def test_enough_validation_texts_combine_the_heads_anew(whole, data):
    before, lines = ml.Model.load(whole).fusion, []
    model = ml.update(whole, new_rows(data, 250), epochs=1, validation=0.5, say=lines.append)
    assert any("fitted on 125 validation texts" in line for line in lines)
    assert model.fusion != before


def test_new_labels_are_added(whole, data):
    labels = replace(data.labels, texts=[*data.labels.texts, "a new label"], uids=[*data.labels.uids, "new"])
    train = data.train.rows(np.arange(30))
    targets = sparse.hstack([train.targets, np.ones((30, 1))]).tocsr().astype(np.float32)
    texts = [f"entirely zebra {text}" for text in train.texts]
    rows = Dataset(replace(train, texts=texts, targets=targets), replace(train, targets=targets), labels, name="more")
    model = ml.update(whole, rows, epochs=1, validation=0)
    assert model.labels.uids[-1] == "new" and len(model.labels) == len(data.labels) + 1
    assert model.stats.counts[-1] == 30
    found = model.search([f"entirely zebra {text}" for text in data.test.texts[:20]], 5, heads="linear").ids
    assert np.mean((found == len(data.labels)).any(axis=1)) > 0.8


def test_labels_added_and_removed_before_stay_so(summed, data):
    model = ml.Model.load(summed)
    model.add_labels(["a label from before"], ["before"])
    model.remove_labels([data.labels.uids[3]])
    model.save(summed / "model", overwrite=True)
    updated = ml.update(summed, new_rows(data, 20), epochs=1, validation=0)
    assert updated.labels.uids[-1] == "before"
    assert updated.state.removed.tolist() == [3]
    assert 3 not in updated.search(data.test.texts, 20).ids
    assert updated.train_rows.targets[:, 3].nnz == 0


def test_another_folder_leaves_the_old_model(summed, data, tmp_path):
    old = (summed / "model" / "model.json").read_bytes()
    ml.update(summed, new_rows(data, 10), tmp_path / "other", epochs=1)
    assert (summed / "model" / "model.json").read_bytes() == old
    assert not (summed / HISTORY).exists()
    assert sorted(path.name for path in (tmp_path / "other").iterdir()) == ["model", "recipe.yaml", HISTORY]
    assert ml.Model.load(tmp_path / "other").predict(["some text"])


def test_the_same_seed_gives_the_same_model(summed, data, tmp_path):
    one, two = (ml.update(summed, new_rows(data, 20), tmp_path / name, epochs=1, seed=3) for name in "ab")
    assert np.array_equal(one.search(data.test.texts, 5).scores, two.search(data.test.texts, 5).scores)


def test_mistakes(summed, data, tmp_path, monkeypatch):
    known = Dataset(data.train, data.test, data.labels, name="known")
    with pytest.raises(DataError, match="known: nothing new, all rows are known"):
        ml.update(summed, known)
    others = replace(data.labels, texts=[f"x{i}" for i in range(60)], uids=[f"x{i}" for i in range(60)])
    with pytest.raises(DataError, match="none of its 60 labels"):
        ml.update(summed, Dataset(data.train, data.test, others, name="others"))
    for name, value in {"epochs": 0, "rate": 0.0, "mix": -1.0, "validation": 1.0}.items():
        with pytest.raises(SettingError, match=name):
            ml.update(summed, known, **{name: value})
    model = ml.Model.load(summed)
    model.save(tmp_path / "bare", texts=False)
    with pytest.raises(DataError, match="saved without its training texts; train again"):
        ml.update(tmp_path / "bare", new_rows(data, 10))
    with pytest.raises(DataError, match="there is no model here"):
        ml.update(tmp_path / "nowhere", known)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(SettingError, match="updated by one process; start it without torchrun"):
        ml.update(summed, known)


STAGED = ("astec-cpu", "renee-cpu", "simcse-cpu", "elias-cpu", "cascadexml-cpu", "dexml-cpu")


@pytest.mark.extra
@pytest.mark.parametrize("recipe", STAGED)
def test_recipes_of_several_stages_and_kinds(recipe, data, small, tmp_path):
    changes = [change for change in small if "refresh" not in change]
    ml.train(recipe, data, tmp_path / "run", changes=[*changes[:-1], "training.epochs=1"])
    model = ml.update(tmp_path / "run", new_rows(data, 30, corrected=2), epochs=1)
    loaded = ml.Model.load(tmp_path / "run")
    assert np.array_equal(loaded.search(data.test.texts, 5).ids, model.search(data.test.texts, 5).ids)
