"""An index saved with a model is used by default, handles label changes, and is complete or absent."""

import json
from pathlib import Path

import numpy as np
import pytest

import megalabel as ml
from megalabel.errors import DataError, SettingError
from megalabel.index import ExactIndex, HnswIndex, IvfIndex
from megalabel.model import store

KINDS = {"exact": ExactIndex, "hnsw": HnswIndex, "ivf": IvfIndex}
MOST = {"exact": {}, "hnsw": {"ef_search": 100}, "ivf": {"nprobe": 100}}  # settings that find all there is
EVERY = pytest.mark.parametrize("kind", KINDS)
CARDS = {"model.json", "about.json", "README.md"}  # the last two may be edited
TEXTS = ["the first text", "another", "a text about something else", "and one more of them"]


@pytest.fixture(autouse=True)
def approximate(monkeypatch):
    """Let few labels, too, be searched by faiss."""
    for one in (HnswIndex, IvfIndex):
        monkeypatch.setattr(one, "_scored", lambda self, count: 0)


def same(one, other, texts, heads="all"):
    a, b = one.search(texts, 20, heads=heads), other.search(texts, 20, heads=heads)
    if any(isinstance(built.index, HnswIndex) for built in other.indexes.built):  # not every label can be reached
        assert np.mean(a.ids[:, :3] == b.ids[:, :3]) > 0.9
        return
    np.testing.assert_array_equal(a.ids, b.ids)
    np.testing.assert_allclose(a.scores, b.scores, rtol=1e-4, atol=1e-5)


def indexed(run, kind, folder):
    model = ml.Model.load(run)
    model.build_index(kind, **MOST[kind])
    model.save(folder)
    return ml.Model.load(folder)


def changed(model):
    """Add, rename and remove labels, of the training and later ones."""
    model.add_labels(["zebra crossing", "yak", "xylophone"], ["z", "y", "x"])
    model.rename_label("lbl-7", "a quiet street")
    model.rename_label("y", "a loud yak")
    model.remove_labels(["x", "lbl-11"])
    return model


@EVERY
def test_a_built_index_is_saved_mapped_and_used(run, data, tmp_path, kind):
    plain, model = ml.Model.load(run), indexed(run, kind, tmp_path / "model")
    built = {one.key: one for one in model.indexes.built}
    fused = model.fusion is not None
    assert list(built) == (
        [(("dual", 1.0),), (("classifier", 1.0),)] if fused else [tuple(model.chosen("all").items())]
    )
    assert all(isinstance(one.index, KINDS[kind]) and one.summary.startswith(kind) for one in built.values())
    same(plain, model, data.test.texts)
    assert "_side" not in vars(model)  # no label was encoded
    assert model.evaluate(data.test).metrics["P@1"] == pytest.approx(plain.evaluate(data.test).metrics["P@1"], abs=3)
    maps = Path("/proc/self/maps")
    assert not maps.exists() or str(tmp_path / "model" / "index") in maps.read_text()
    assert not ml.Model.load(tmp_path / "model", exact=True).indexes.built


@EVERY
def test_labels_can_change_with_an_index_before_and_after_saving(run, data, tmp_path, kind):
    plain, model = changed(ml.Model.load(run)), changed(indexed(run, kind, tmp_path / "model"))
    texts = [*data.test.texts[:40], "zebra crossing", "a quiet street", "a loud yak"]
    same(plain, model, texts)
    same(plain, model, texts, "dual")
    model.save(tmp_path / "model", overwrite=True)
    again = ml.Model.load(tmp_path / "model")
    assert all(one.ids.tolist() == [7, 60, 61] for one in again.indexes.built)
    same(plain, again, texts)
    plain.save(tmp_path / "plain")  # saved, an added label is one of the others
    plain = ml.Model.load(tmp_path / "plain")
    assert again.predict(["zebra crossing"], 1, heads="dual")[0][0].uid == "z"
    for one in (plain, again):  # and again, on what is saved
        one.rename_label("lbl-7", "the old street")
        one.rename_label("z", "a zebra that crosses")
        one.remove_labels(["y", "lbl-3"])
        one.add_labels(["wombat"], ["w"])
    same(plain, again, texts)
    again.save(tmp_path / "model", overwrite=True)
    third = ml.Model.load(tmp_path / "model")
    assert all(one.ids.tolist() == [7, 60, 63] for one in third.indexes.built)
    same(plain, third, texts)
    actual = third.search(texts, 64).ids
    assert not np.isin(actual, [3, 11, 61, 62]).any()


def test_rebuilding_an_index_includes_changed_labels(run, data, tmp_path):
    model = changed(indexed(run, "ivf", tmp_path / "model"))
    assert model.indexes.beside(model.state) == 3
    model.save(tmp_path / "model", overwrite=True)
    model = ml.Model.load(tmp_path / "model")
    model.build_index("exact")
    assert model.indexes.beside(model.state) == 0
    assert all(isinstance(one.index, ExactIndex) and len(one.index) == 63 for one in model.indexes.built)
    same(ml.Model.load(tmp_path / "model"), model, data.test.texts)


def test_adding_and_removing_a_label_leaves_no_changed_labels(run, data, tmp_path):
    model = indexed(run, "ivf", tmp_path / "model")
    model.add_labels(["yak"], ["y"])
    model.remove_labels(["y"])
    model.save(tmp_path / "model", overwrite=True)
    again = ml.Model.load(tmp_path / "model")
    assert again.indexes.beside(again.state) == 0
    same(ml.Model.load(run), again, data.test.texts)
    again.evaluate(_wide(data.test, 61))


def _wide(split, labels):
    """Return a split over more labels."""
    from dataclasses import replace

    from scipy import sparse

    targets = sparse.csr_matrix((split.targets.data, split.targets.indices, split.targets.indptr), (len(split), labels))
    return replace(split, targets=targets)


def test_one_head_by_name(run, data, tmp_path):
    model = ml.Model.load(run)
    actual = model.build_index("ivf", heads="dual", queries=TEXTS, at_least=1.0)
    assert list(actual) == ["dual"] and actual["dual"].measured_on == "4 queries"
    model.save(tmp_path / "model")
    again = ml.Model.load(tmp_path / "model")
    assert [one.key for one in again.indexes.built] == [(("dual", 1.0),)]
    same(ml.Model.load(run), again, data.test.texts, "dual")
    same(ml.Model.load(run), again, data.test.texts)
    assert again.indexes.drop() == 1 and not again.indexes.built


def test_measured_on_training_texts_or_else_on_labels(fused_run, tmp_path):
    model = ml.Model.load(fused_run)
    choice = model.build_index("ivf")["dual"]
    assert (choice.measured_on, choice.k) == ("256 queries", 20)
    model.save(tmp_path / "bare", texts=False)
    choice = ml.Model.load(tmp_path / "bare").build_index("ivf", k=5)["dual"]
    assert "no queries were given" in choice.measured_on and choice.k == 5


def test_a_damaged_index_gives_one_line_and_the_model_loads_without_it(run, data, tmp_path):
    indexed(run, "ivf", tmp_path / "model")
    for name in ("index.faiss", "vectors.npy", "index.json"):
        path = tmp_path / "model" / "index" / "0" / "labels" / name
        whole = path.read_bytes()
        path.write_bytes(whole[:-9] + b"x" + whole[-8:])
        if name != "index.json":
            same(ml.Model.load(run), ml.Model.load(tmp_path / "model", exact=True), data.test.texts[:5])
        with pytest.raises(DataError, match=f"{name}: this file changed after it was saved") as error:
            ml.Model.load(tmp_path / "model")
        assert "\n" not in str(error.value)
        path.write_bytes(whole)
    ml.Model.load(tmp_path / "model")


def test_the_card_checks_every_file(run, tmp_path):
    changed(indexed(run, "ivf", tmp_path / "model")).save(tmp_path / "model", overwrite=True)
    card = json.loads((tmp_path / "model" / "model.json").read_bytes())
    files = {path.relative_to(tmp_path / "model").as_posix() for path in (tmp_path / "model").rglob("*.*")}
    assert set(card["sha256"]) == {name for name in files if (tmp_path / "model" / name).is_file()} - CARDS
    assert card["format"] == 4
    assert card["index"][0]["changed"] == [7, 60, 61]


def test_a_failed_save_keeps_the_old_index(run, data, tmp_path, monkeypatch):
    model = indexed(run, "ivf", tmp_path / "model")
    model.build_index("hnsw", **MOST["hnsw"])

    def fail(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store, "files_in", fail)
    with pytest.raises(ml.MegalabelError, match="nothing was changed"):
        model.save(tmp_path / "model", overwrite=True)
    assert all(isinstance(one.index, IvfIndex) for one in ml.Model.load(tmp_path / "model").indexes.built)


def test_an_index_of_another_model_is_refused(run, tmp_path, monkeypatch):
    model = ml.Model.load(run)
    model.build_index("ivf", heads="dual")
    monkeypatch.setattr(type(model.indexes.built[0]), "save", _as_of("nobody", type(model.indexes.built[0]).save))
    model.save(tmp_path / "model")
    with pytest.raises(DataError, match="this index belongs to another model; build it again"):
        ml.Model.load(tmp_path / "model")


def _as_of(head, save):
    return lambda self, folder: {**save(self, folder), "weights": {head: 1.0}}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"kind": "hnws"}, "did you mean 'hnsw'"),
        ({"kind": "ivf", "M": 3}, "an index of kind ivf has no setting 'M'"),
        ({"kind": "auto", "M": 3}, "name the kind of index"),
        ({"at_least": 2}, "at_least must lie in 0 to 1"),
        ({"k": 0}, "k must be at least 1"),
        ({"heads": "duel"}, "did you mean 'dual'"),
        ({"queries": "text"}, "a list of queries"),
    ],
)
def test_invalid_arguments_fail_before_labels_are_encoded(run, arguments, words):
    model = ml.Model.load(run)
    with pytest.raises(SettingError, match=words):
        model.build_index(**arguments)
    assert "_side" not in vars(model)


def test_no_queries(run):
    with pytest.raises(DataError, match="no queries"):
        ml.Model.load(run).build_index("ivf", queries=[])
