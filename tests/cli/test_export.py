"""``import dexml`` and ``export``, as a user types them: a checkpoint in, folders for other programs out."""

import json

import numpy as np
import pytest
import torch

from megalabel import Model, load, save

DATA = "synthetic:points=60,labels=8,seed=5"


def write_base(folder):
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import DistilBertConfig, DistilBertModel, PreTrainedTokenizerFast

    vocabulary = {word: place for place, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "b"])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]").save_pretrained(folder)
    shape = {"vocab_size": 6, "dim": 8, "n_layers": 1, "n_heads": 2, "hidden_dim": 8, "max_position_embeddings": 40}
    torch.manual_seed(0)
    model = DistilBertModel(DistilBertConfig(**shape))
    model.save_pretrained(folder)
    return model


@pytest.fixture
def imported(call, tmp_path):
    """Return data and model of a checkpoint."""
    model = write_base(tmp_path / "base")
    torch.save({f"tf.{name}": value for name, value in model.state_dict().items()}, tmp_path / "model.pt")
    save(load(DATA), tmp_path / "data")
    where = ["--data", tmp_path / "data", "--out", tmp_path / "model"]
    code, out, err = call("import", "dexml", tmp_path / "model.pt", *where, "--base", tmp_path / "base")
    assert (code, out) == (0, "") and "8 labels, cls pooling, 32 tokens, vectors of unit length" in err
    return tmp_path / "data", tmp_path / "model"


def test_import_then_export(call, imported, tmp_path):
    data, model = imported
    code, out, err = call("import", "dexml", tmp_path / "model.pt", "--data", data, "--out", model)
    assert code == 2 and "not empty" in err
    code, out, _ = call("predict", model, "--text", "a b", "-k", "2", "--json")
    assert code == 0 and len(json.loads(out)["predictions"][0]) == 2
    code, out, err = call("export", model, "--to", "sentence-transformers", "--out", tmp_path / "st")
    assert (code, out) == (0, "") and "head dual, vectors of 8 dimensions, 8 label texts" in err
    assert "not exported" not in err
    code, out, err = call("export", model, "--to", "sentence-transformers", "--out", tmp_path / "st")
    assert code == 2 and "--overwrite" in err


def test_the_loss_of_8_bit_weights_is_printed(call, imported, tmp_path):
    pytest.importorskip("onnxscript")
    data, model = imported
    more = ["--to", "onnx", "--out", tmp_path / "onnx", "--int8"]
    code, _, err = call("export", model, *more)
    assert code == 2 and "give --data" in err and not (tmp_path / "onnx").exists()
    code, out, err = call("export", model, *more, "--data", data)
    assert code == 0, err
    lines = out.splitlines()
    assert lines[0].startswith("model.onnx: ") and lines[1].startswith("model.int8.onnx: ") and "P@1" in lines[1]
    assert lines[2].startswith("8-bit weights cost ") and lines[2].endswith(" points of P@1")


def test_a_bag_is_exported_for_programs_beside_this_package(call, trained, tmp_path):
    from sentence_transformers import SentenceTransformer

    code, out, err = call("export", trained, "--to", "sentence-transformers", "--out", tmp_path / "st")
    assert (code, out) == (0, ""), err
    assert "not exported: " in err and "trust_remote_code" not in err  # a bag without word pairs
    other, model = SentenceTransformer(str(tmp_path / "st"), device="cpu"), Model.load(trained)
    texts = list(model.labels.texts[:4])
    head = json.loads((tmp_path / "st" / "export.json").read_text())["head"]
    np.testing.assert_allclose(other.encode_query(texts), model.encode(texts, heads=head), atol=1e-5)
    side = model.label_side()[head].vectors
    np.testing.assert_allclose(other.encode_document(list(model.labels.texts)), side, atol=1e-5)


def test_what_is_refused(call, trained, tmp_path):
    code, out, err = call("export", trained, "--to", "onnx", "--out", tmp_path / "out")
    assert (code, out) == (2, "") and "bag encoder" in err and "dexml, dexml-hnm, depsl, unidec" in err
    assert err.count("\n") == 1 and not (tmp_path / "out").exists()
    code, _, err = call("export", trained, "--to", "sentence-transformers", "--out", tmp_path / "out", "--data", DATA)
    assert code == 2 and "for --to onnx" in err
    code, _, err = call("export", trained, "--to", "onnx", "--out", tmp_path / "out", "--data", "synthetic:labels=9")
    assert code == 2 and "does not have the labels" in err
