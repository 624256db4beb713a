"""``megalabel explain``: one page of reasons, or one JSON document."""

import json

import pytest

import megalabel as ml
from megalabel.__main__ import main

SMALL = [
    "encoder.source=null",
    "encoder.options={dim: 16, words: 512, bigrams: 0, characters: 0}",
    "batching.batch_size=64",
    "training.epochs=1",
]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("explain") / "run"
    data = ml.load("synthetic:points=200,labels=30,seed=5")
    return folder, ml.train("unidec-cpu", data, folder, changes=SMALL), data.test.texts[0]


def test_a_page_and_a_document(trained, capsys):
    folder, model, text = trained
    assert main(["explain", str(folder), "--text", text]) == 0
    page = capsys.readouterr().out
    best = model.predict([text], 1)[0][0]
    assert page.startswith(f"{best.text}  ({best.uid})\nrank 1; ")
    assert "nearest training texts with this label" in page
    assert main(["explain", str(folder), "--text", text, "--label", "3", "-k", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["id"] == 3
    assert len(found["nearest"]) <= 2
    assert [part["head"] for part in found["heads"]] == ["dual", "classifier"]


def test_a_label_nobody_knows(trained, capsys):
    folder, _, text = trained
    assert main(["explain", str(folder), "--text", text, "--label", "xyzzy"]) == 2
    assert "no label has the uid, text or number 'xyzzy'" in capsys.readouterr().err
