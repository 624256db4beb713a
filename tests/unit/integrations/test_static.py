"""A bag leaves as a static embedding: the same vectors for texts of known words, in a process without megalabel."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

import megalabel as ml
from megalabel.errors import SettingError
from megalabel.index import ExactIndex
from megalabel.integrations.export_onnx import export_onnx
from megalabel.integrations.export_sentence_transformers import export_sentence_transformers

SentenceTransformer = pytest.importorskip("sentence_transformers").SentenceTransformer
READ = """
import sys, json
sys.modules["megalabel"] = None
import numpy as np
from sentence_transformers import SentenceTransformer
model = SentenceTransformer(sys.argv[1], device="cpu", local_files_only=True)
texts, labels = json.loads(sys.argv[2])
np.savez(sys.argv[3], query=model.encode_query(texts), label=model.encode_document(labels))
"""
SMALL = ["batching.batch_size=64", "batching.refresh={start: 1, every: 2}", "training.epochs=1"]
ODD = ["A synthetic TEXT, of one's own (café; naïve) №7 ½ …", "x" * 90, "!?", "two  spaces\tand tabs"]


@pytest.fixture(scope="module")
def data():
    data = ml.load("synthetic:points=300,labels=40,seed=5")
    texts = [*data.train.texts[: -len(ODD)], *ODD]
    return data.replace(train=type(data.train)(texts, data.train.targets, data.train.uids))


@pytest.fixture(scope="module", params=[False, True], ids=["hashed", "subwords"])
def model(request, data, bert):
    source = json.dumps(bert if request.param else None)
    sizes = "encoder.options={dim: 32, words: 1024, bigrams: 0, characters: 1024}"
    return ml.train("distil", data, changes=[*SMALL, f"encoder.source={source}", sizes])


def read(folder, texts, labels, out):
    asked = json.dumps([list(texts), list(labels)])
    subprocess.run([sys.executable, "-c", READ, folder, asked, out], check=True, capture_output=True)
    return np.load(out)


def test_same_vectors_and_ranking(model, data, tmp_path):
    (new,) = model.add_labels(["a text of known words, A synthetic"])
    model.remove_labels([model.labels.uids[2]])
    tower = export_sentence_transformers(model, tmp_path / "out")
    assert tower.left_behind == ["words that are not in the training texts, but for their subwords"]
    texts = list(model.train_rows.texts)
    other = read(tmp_path / "out", texts, model.labels.texts[-1:], tmp_path / "vectors.npz")
    np.testing.assert_allclose(other["query"], model.encode(texts), atol=1e-5, rtol=0)
    vectors = load_file(tmp_path / "out" / "labels.safetensors")["vectors"]
    assert len(vectors) == 40  # one was added and one removed
    np.testing.assert_allclose(other["label"][0], vectors[-1], atol=1e-5, rtol=0)
    best = ExactIndex(torch.from_numpy(vectors)).search(torch.from_numpy(other["query"]), 3)
    own = model.search(texts, 3)
    np.testing.assert_allclose(best.scores, own.scores, atol=1e-5)
    model.remove_labels([new])


@pytest.mark.parametrize("change", ["encoder.options.bigrams=64", "heads.labels.normalise=false"])
def test_a_bag_that_no_table_can_be_is_a_module_of_this_package(data, tmp_path, change):
    sizes = "encoder.options={dim: 8, words: 64, bigrams: 0, characters: 0}"
    model = ml.train("distil", data, changes=[*SMALL, "encoder.source=null", sizes, change])
    tower = export_sentence_transformers(model, tmp_path / "out")
    assert tower.needs_us and not tower.left_behind
    assert json.loads((tmp_path / "out" / "export.json").read_text())["needs"] == ["megalabel"]
    other = SentenceTransformer(str(tmp_path / "out"), device="cpu", trust_remote_code=True)
    texts = [*data.test.texts[:4], "words that nobody knows", ""]
    np.testing.assert_allclose(other.encode_query(texts), model.encode(texts), atol=1e-5, rtol=0)
    model.add_labels(["quite new"])
    new = model.state.folded({"labels": 1.0})[0]
    np.testing.assert_allclose(other.encode_document(["quite new"])[0], new, atol=1e-5, rtol=0)


def test_no_bag_goes_to_onnx(model, tmp_path):
    with pytest.raises(SettingError, match="a bag encoder has features"):
        export_onnx(model, tmp_path / "onnx")


def test_a_head_with_corrections_over_a_transformer(make_model, texts, tmp_path):
    change = "heads={labels: {kind: text_free, query_matrix: true, loss: {kind: bce}}}"
    model = make_model(change)
    tower = export_sentence_transformers(model, tmp_path / "st")
    assert tower.name == "labels" and not tower.left_behind
    other = read(tmp_path / "st", texts, ["quite new"], tmp_path / "vectors.npz")
    np.testing.assert_allclose(other["query"], model.encode(texts), atol=1e-5, rtol=0)
    model.add_labels(["quite new"])
    new = model.state.folded({"labels": 1.0})[0].numpy()
    np.testing.assert_allclose(other["label"][0], new, atol=1e-5, rtol=0)
    vectors = load_file(tmp_path / "st" / "labels.safetensors")["vectors"]
    np.testing.assert_allclose(vectors, model.label_side()["labels"].vectors.numpy(), atol=1e-6)
    if pytest.importorskip("onnxscript") and pytest.importorskip("onnxruntime"):
        from megalabel.integrations.export_onnx import _Session

        export_onnx(model, tmp_path / "onnx")
        session = _Session(tmp_path / "onnx" / "model.onnx")
        np.testing.assert_allclose(session.encode(["quite new"], "label", 16)[0], new, atol=1e-5, rtol=0)
