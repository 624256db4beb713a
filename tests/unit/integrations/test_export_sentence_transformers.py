"""The exported folder gives the vectors of the model, in a process without megalabel."""

import gzip
import json
import subprocess
import sys

import numpy as np
import pytest
import torch

from megalabel.errors import MissingExtraError, SettingError, WriteError
from megalabel.integrations.export_sentence_transformers import export_sentence_transformers

TWO = "heads={free: {kind: free, loss: {kind: bce}}, dual: {kind: text, loss: {kind: bce}}}"
READ = """
import sys, json
sys.modules["megalabel"] = None
import numpy as np
from sentence_transformers import SentenceTransformer
folder, texts, labels = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])
model = SentenceTransformer(folder, device="cpu", local_files_only=True)
np.savez(sys.argv[4], plain=model.encode(texts), query=model.encode_query(texts), label=model.encode_document(labels))
"""


def loaded(folder):
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(folder), device="cpu", local_files_only=True)


def same(actual, expected):
    np.testing.assert_allclose(actual, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("changes", "options", "routes"),
    [
        ([], {}, False),
        ([], {"pooling": "cls"}, False),
        ([], {"projection": 6}, False),
        (["heads.dual.dim=5", "heads.dual.projection=tanh"], {}, False),
        (["heads.dual.dim=5", "heads.dual.projection=linear", "heads.dual.normalise=false"], {}, False),
        (["heads.dual.projection=residual"], {}, False),
        (["heads.dual.projection=residual_identity"], {}, False),
        (["heads.dual.projection=gelu_residual"], {}, False),
        (["heads.dual.query_matrix=true"], {"projection": 6}, True),
        (["heads.dual.query_matrix=true", "heads.dual.projection=residual", "heads.dual.normalise=false"], {}, True),
        (["encoder.query_length=24", "encoder.label_length=4"], {}, True),
        (["encoder.query_length=4", "encoder.label_length=null", "heads.dual.query_matrix=true"], {}, True),
    ],
)
def test_same_vectors(make_model, texts, tmp_path, changes, options, routes):
    model = make_model(*changes, options=options)
    tower = export_sentence_transformers(model, tmp_path / "out")
    other = loaded(tmp_path / "out")
    queries, labels = model.encode(texts, heads="dual"), model.label_side()["dual"].vectors.numpy()
    same(other.encode(texts), queries)
    same(other.encode_query(texts), queries)
    same(other.encode_document(model.labels.texts), labels)
    scores = queries @ labels.T  # up to 80 without normalising, where one step of float32 is 8e-6
    np.testing.assert_allclose(other.similarity(queries, labels), scores, atol=1e-5, rtol=1e-6)
    assert json.loads((tmp_path / "out" / "export.json").read_text())["routes"] == routes == (not tower.tied)


@pytest.mark.parametrize("layer", ["gated_residual", "relu_residual"])
def test_layers_without_a_standard_module_are_refused(make_model, tmp_path, layer):
    with pytest.raises(SettingError, match=f"no module for {layer} of the head 'dual'"):
        export_sentence_transformers(make_model(f"heads.dual.projection={layer}"), tmp_path / "out")


def test_alone_and_offline(make_model, texts, tmp_path):
    model = make_model("heads.dual.query_matrix=true")
    export_sentence_transformers(model, tmp_path / "out")
    arguments = [tmp_path / "out", json.dumps(texts), json.dumps(model.labels.texts), tmp_path / "vectors.npz"]
    subprocess.run([sys.executable, "-c", READ, *map(str, arguments)], check=True, capture_output=True)
    actual = np.load(tmp_path / "vectors.npz")
    same(actual["query"], model.encode(texts))
    same(actual["plain"], model.encode(texts))
    same(actual["label"], model.label_side()["dual"].vectors)


def test_weights_are_written_once(make_model, tmp_path):
    export_sentence_transformers(make_model("heads.dual.query_matrix=true"), tmp_path / "out")
    assert len(list((tmp_path / "out").rglob("config_sentence_transformers.json"))) == 1
    sizes = [path.stat().st_size for path in (tmp_path / "out").rglob("model.safetensors")]
    assert sorted(sizes)[-2] < sorted(sizes)[-1] / 10  # the rest are matrices
    assert not list((tmp_path / "out").rglob("*.bin"))


def test_model_stays_as_it_was(make_model, tmp_path):
    model = make_model("heads.dual.query_matrix=true")
    before = {name: value.clone() for name, value in model.network.state_dict().items()}
    export_sentence_transformers(model, tmp_path / "out")
    after = model.network.state_dict()
    assert before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)


def test_parts_that_are_not_exported_are_listed(make_model, tmp_path, capfd):
    model = make_model(TWO)
    capfd.readouterr()
    tower = export_sentence_transformers(model, tmp_path / "out")
    assert capfd.readouterr() == ("", "")
    assert (tower.name, tower.left_behind) == ("dual", ["head free (free)"])
    assert json.loads((tmp_path / "out" / "export.json").read_text())["left_behind"] == tower.left_behind
    with pytest.raises(SettingError, match=r"'free' is not one whose label .*; choose one of: dual"):
        export_sentence_transformers(make_model(TWO), tmp_path / "other", head="free")
    with pytest.raises(SettingError, match="did you mean 'dual'"):
        export_sentence_transformers(make_model(TWO), tmp_path / "other", head="dul")


def test_current_labels_are_exported(make_model, tmp_path):
    model = make_model()
    model.remove_labels(["lbl-1"])
    (new,) = model.add_labels(["slow coat"])
    export_sentence_transformers(model, tmp_path / "out")
    with gzip.open(tmp_path / "out" / "labels.jsonl.gz") as lines:
        rows = [json.loads(line) for line in lines]
    assert [row["uid"] for row in rows] == ["lbl-0", "lbl-2", "lbl-3", "lbl-4", "lbl-5", new]
    assert rows[-1]["text"] == "slow coat"


def test_what_cannot_be_exported(make_model, tmp_path):
    with pytest.raises(SettingError, match="no head whose label vectors come from texts"):
        export_sentence_transformers(make_model("heads={only: {kind: free, loss: {kind: bce}}}"), tmp_path / "out")
    with pytest.raises(SettingError, match="pools several layers"):
        export_sentence_transformers(make_model(options={"layers": 2}), tmp_path / "out")
    with pytest.raises(SettingError, match="the head 'dual' reads a layer inside the encoder"):
        export_sentence_transformers(make_model("heads.dual.layer=1"), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.fixture
def two_encoders(make_model, tmp_path, bert):
    """Return a model with two text heads: one reads its second encoder only, one reads both."""
    text = f"""
name: two
paper: none
about: two encoders
encoders:
  first: {{kind: transformer, source: {bert}, query_length: 8}}
  second: {{kind: transformer, source: {bert}, query_length: 16, label_length: 16}}
heads:
  untied: {{kind: text, encoder: first, label_encoder: second, loss: softmax}}
  tied: {{kind: text, encoder: second, loss: softmax}}
batching: {{batch_size: 8}}
training: {{epochs: 1, encoder: {{kind: adamw, lr: 1.0e-3}}}}
"""
    (tmp_path / "two.yaml").write_text(text)
    model = make_model(recipe=str(tmp_path / "two.yaml"), plain=True)
    with torch.no_grad():
        for parameter in model.network.encoders["first"].parameters():
            parameter.mul_(0.5)  # else both would give the same vectors
    return model


def test_a_head_is_exported_with_its_own_encoder(two_encoders, texts, tmp_path):
    with pytest.raises(SettingError, match="the head 'untied' has two encoders"):
        export_sentence_transformers(two_encoders, tmp_path / "out", head="untied")
    export_sentence_transformers(two_encoders, tmp_path / "out", head="tied")
    same(loaded(tmp_path / "out").encode(texts), two_encoders.encode(texts, heads="tied"))


def test_nothing_is_overwritten(make_model, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").touch()
    with pytest.raises(WriteError, match="not empty"):
        export_sentence_transformers(make_model(), tmp_path / "out")
    export_sentence_transformers(make_model(), tmp_path / "out", overwrite=True)
    assert not (tmp_path / "out" / "mine").exists()


def test_without_the_package(make_model, tmp_path, monkeypatch):
    monkeypatch.setattr("megalabel.integrations.export_sentence_transformers.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"megalabel\[hf\]"):
        export_sentence_transformers(make_model(), tmp_path / "out")
    where = "megalabel.integrations.export_sentence_transformers.find_spec"
    monkeypatch.setattr(where, lambda name: None if "." in name else name)
    with pytest.raises(SettingError, match="too old"):
        export_sentence_transformers(make_model(), tmp_path / "out")
