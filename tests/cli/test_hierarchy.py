"""Names, notations and parents of labels: kept by a model, shown by the commands."""

import dataclasses
import json

import pytest

import megalabel as ml
from megalabel.data.concepts import Concept

TEXT = "some words of no text in particular"


@pytest.fixture
def folder(trained, tmp_path):
    """A saved model whose labels have parents: label i is part of label i // 2."""
    model = ml.Model.load(trained)
    concepts = {i: Concept(f"name {i}", f"N{i}", (i // 2,)) for i in range(1, len(model.labels))}
    model.labels = dataclasses.replace(model.labels, concepts={0: Concept("the root"), **concepts})
    model.save(tmp_path / "model")
    return tmp_path / "model"


def test_a_model_keeps_them_through_changes_and_saves(folder, tmp_path):
    model = ml.Model.load(folder)
    count = len(model.labels)
    assert model.labels.parents(5) == (2,)
    assert model.labels.concept(5) == Concept("name 5", "N5", (2,))
    model.add_labels(["a new label"], ["new"])
    model.rename_label(model.labels.uids[5], "another text")
    model.save(tmp_path / "again")
    again = ml.Model.load(tmp_path / "again")
    assert (again.labels.name(count), again.labels.parents(count)) == ("a new label", ())
    assert (again.labels.name(5), again.labels.parents(5)) == ("another text", (2,))
    assert again.labels.name(6) == "name 6"


def test_predict_and_explain_show_parents(call, folder):
    labels = ml.Model.load(folder).labels
    code, out, _ = call("predict", folder, "--text", TEXT, "-k", str(len(labels)), "--json")
    assert code == 0
    for found in json.loads(out)["predictions"][0]:
        above = found["id"] // 2
        expected = [{"uid": labels.uids[above], "text": labels.name(above)}] if found["id"] else None
        assert found.get("parents") == expected
    code, page, _ = call("explain", folder, "--text", TEXT, "--label", labels.uids[5])
    assert code == 0
    assert page.splitlines()[1] == "part of name 2"
    code, out, _ = call("explain", folder, "--text", TEXT, "--label", labels.uids[5], "--json")
    assert json.loads(out)["parents"] == [[labels.uids[2], "name 2"]]


def test_without_a_hierarchy_nothing_is_shown(call, trained):
    code, out, _ = call("predict", trained, "--text", TEXT, "--json")
    assert code == 0
    assert "parents" not in out
