"""ONNX Runtime and tokenizers alone give the vectors of the model; 8 bits are measured."""

import json

import numpy as np
import pytest

from megalabel.data.dataset import Dataset
from megalabel.errors import DataError, MissingExtraError, SettingError
from megalabel.integrations.export_onnx import export_onnx, measure_onnx

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")


def run(folder, texts, output, name="model.onnx", length=None):
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    if length is not None:
        tokenizer.enable_truncation(length)
    rows = tokenizer.encode_batch(texts)
    feed = {"input_ids": [row.ids for row in rows], "attention_mask": [row.attention_mask for row in rows]}
    session = onnxruntime.InferenceSession(folder / name, providers=["CPUExecutionProvider"])
    return session.run([output], {key: np.array(value, dtype=np.int64) for key, value in feed.items()})[0]


def check_same(model, texts, folder):
    for some in (texts, texts[:1], texts[2:3], texts[3:5]):
        np.testing.assert_allclose(run(folder, some, "query"), model.encode(some), atol=1e-5)
    length = json.loads((folder / "export.json").read_text())["label_length"]
    actual = run(folder, model.labels.texts, "label", length=length)
    np.testing.assert_allclose(actual, model.label_side()["dual"].vectors, atol=1e-5)


def test_same_vectors_for_any_batch_and_length(make_model, texts, tmp_path):
    lengths = ["encoder.query_length=24", "encoder.label_length=4"]
    model = make_model(*lengths, options={"pooling": "cls", "layers": 2, "projection": 6})
    before = model.encode(texts)
    tower = export_onnx(model, tmp_path / "out")
    assert (tower.query_length, tower.label_length) == (24, 4)
    assert not list((tmp_path / "out").glob("*.data"))  # weights are in the file
    check_same(model, texts, tmp_path / "out")
    np.testing.assert_array_equal(model.encode(texts), before)


def test_eight_bits_are_measured(make_model, texts, tmp_path, capfd):
    model = make_model("heads.dual.query_matrix=true", "heads.dual.projection=tanh", "heads.dual.dim=5")
    rows = [(text, [place]) for place, text in enumerate(model.labels.texts)]
    data = Dataset.from_lists(rows, rows, model.labels.texts)
    export_onnx(model, tmp_path / "out", int8=True)
    assert capfd.readouterr() == ("", "")
    check_same(model, texts, tmp_path / "out")
    small, full = (run(tmp_path / "out", texts, "query", name) for name in ("model.int8.onnx", "model.onnx"))
    assert 0 < np.abs(small - full).max() < 0.3
    actual = measure_onnx(tmp_path / "out", data)
    assert list(actual) == ["model.onnx", "model.int8.onnx"]
    assert actual["model.onnx"] == {name: model.evaluate(data).metrics[name] for name in ("P@1", "P@5")}


def test_unsupported_exports(make_model, tmp_path, monkeypatch):
    with pytest.raises(DataError, match=r"there is no export\.json"):
        measure_onnx(tmp_path, None)
    with pytest.raises(SettingError, match="kind: text"):
        export_onnx(make_model("heads={free: {kind: free, loss: {kind: bce}}}"), tmp_path / "out")
    monkeypatch.setattr("megalabel.integrations.export_onnx.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"megalabel\[onnx\]"):
        export_onnx(make_model(), tmp_path / "out")
