"""Whole runs on a device other than the CPU: no tensor is left on the CPU, and the results are equal."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer, models, pre_tokenizers, processors

import megalabel as ml
from megalabel.errors import DataError, SettingError
from megalabel.heads import DenseHead
from megalabel.training import loop as looping
from megalabel.training import phase as phases
from megalabel.training.run_log import read_log
from megalabel.types import Batch

SMALL = ["encoder.source=null", "batching.batch_size=64", "training.epochs=2", "training.chunk_size=48"]
BAG = [*SMALL, "encoder.options={dim: 16, words: 512, bigrams: 0, characters: 0, dropout: 0.1}"]
BOTH = "auto", "cpu"
AGAIN = "batching.refresh={start: 1, every: 1}"
RUNS = {
    "clusters and mined pools": ["unidec-cpu", *BAG, AGAIN],
    "all labels, tables as the encoder": ["dexml-cpu", *BAG, "training.tables=null"],
    "log q, soft top k, uniform negatives, clipping": [
        "dexml-hnm-cpu", *BAG, "batching.log_q=true", "batching.negatives={uniform: 5, mined: 2, top: 10}", AGAIN,
        "training.tables={kind: lazy_adamw, lr: 0.01}", "training.clip=1.0", "heads.dual.loss.kind=soft_top_k",
    ],
    "convolutions": [
        "inceptionxml-cpu", *SMALL, AGAIN, "encoder.options={dim: 16, words: 512, filters: 4, bins: 2, channels: 4}",
    ],
    "batch normalisation, one cycle": [
        "inceptionxml", *SMALL, "training.chunk_size=64",
        "encoder.options={token_dim: 64, words: 512, filters: 4, dropout: 0, token_dropout: 0}",
        "heads.classifier.query_dropout=0",
    ],
    "projections, learnt temperature, symmetric loss": [
        "unidec", *BAG, AGAIN, "encoder={kind: bag, source: null, options: {dim: 16, words: 512}}",
        "heads.dual.dim=8", "heads.classifier.dim=8",
    ],
    "text and free, bias, triplets, graph of labels": [
        "unidec-cpu", *BAG, AGAIN, "heads.dual.loss.kind=triplet",
        "heads.classifier={kind: text_free, bias: true, loss: decoupled_softmax, weight: 0.5}",
        "batching.negatives={mined: 2, top: 10, search: hnsw}",
    ],
    "shared vectors, classifiers in half precision from a graph": [
        "unidec-cpu", *BAG, AGAIN, "heads.dual={kind: shared, size: 5, private: 4, loss: softmax, weight: 0.5}",
        "heads.classifier={kind: free, init: graph, dtype: bfloat16, weight: 0.5, "
        "loss: {kind: triplet, k: 5, positives: 2, weights: hinge}}",
        "training.tables={kind: sgd, lr: 0.02, momentum: 0.0}",
    ],
    "neighbours of labels": ["dexml-hnm-cpu", *BAG, AGAIN, "heads.dual={kind: neighbours, loss: softmax}"],
    "frozen encoder": [
        "unidec-cpu", *BAG, AGAIN, "freeze=[encoder]", "encoder.options.dropout=0.0",
        "heads.dual={kind: text_free, unit_text: true, loss: softmax, weight: 0.5}",
    ],
    "refit, all heads fused": [
        "auto", *BAG, "training.epochs=1", "ngrams={words: 512, bigrams: 512, characters: 0}",
        "predict={weights: fusion, candidates: 20}",
    ],
}  # fmt: skip


@pytest.fixture(scope="module")
def data():
    """A small set where texts of points and labels repeat, and some pairs are filtered."""
    made = ml.load("synthetic:points=200,labels=30,seed=5")
    texts = [*made.train.texts[:80], *made.train.texts[:40], *made.train.texts[120:]]
    pairs = np.stack([np.arange(len(texts)), np.arange(len(texts)) % 30], axis=1)
    return made.replace(
        train=replace(made.train, texts=texts, filter=pairs),
        test=replace(made.test, filter=pairs[: len(made.test)]),
        labels=replace(made.labels, texts=[*made.labels.texts[:28], *made.labels.texts[:2]]),
    )


@pytest.fixture(scope="module")
def tiny_model(data, tmp_path_factory):
    """The folder of a random BERT of one layer that knows the words of the data."""
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    words = dict.fromkeys(word for text in [*data.train.texts, *data.labels.texts] for word in text.split())
    vocabulary = {word: number for number, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *words])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    folder = tmp_path_factory.mktemp("tiny")
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=64, **special).save_pretrained(folder)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24}
    torch.manual_seed(0)
    BertModel(BertConfig(vocab_size=len(vocabulary), max_position_embeddings=64, **sizes)).save_pretrained(folder)
    return folder


def transformer(folder):
    encoder = {
        "kind": "transformer",
        "source": str(folder),
        "options": {"dropout": 0.0, "max_length": 32, "projection": 12},
    }
    return ["dexml", *SMALL[1:], f"encoder={json.dumps(encoder)}", "training.encoder.lr=1.0e-3", "training.clip=1.0"]


def train(data, folder, run, **options):
    recipe, *changes = run
    return ml.train(recipe, data, folder, changes=changes, **options)


def weights(folder):
    files = [folder / "model" / "heads.safetensors", *(folder / "model" / "encoders" / "encoder").glob("*.safetensors")]
    return {f"{path.stem}.{name}": value for path in files for name, value in load_file(path).items()}


def check_same(data, there, here, folders):
    """Compare two models to rounding, in all they can do."""
    actual, expected = map(weights, folders)
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-4)
    assert there.weights == pytest.approx(here.weights)
    assert there.evaluate(data).metrics == pytest.approx(here.evaluate(data).metrics, abs=0.5)
    for heads in ("all", *here.heads):
        rows = zip(*(model.predict(data.test.texts[:3], k=3, heads=heads) for model in (there, here)), strict=True)
        assert all(one.id == other.id for row in rows for one, other in zip(*row, strict=True))
    texts = data.test.texts[:2]
    assert there.encode(texts) == pytest.approx(here.encode(texts), abs=1e-4)


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_a_run_on_the_device_equals_one_on_the_cpu(data, run, far, tmp_path):
    there, here = (train(data, tmp_path / device, run, device=device) for device in BOTH)
    folders = [tmp_path / device for device in BOTH]
    assert {part.device for part in [*there.network.parameters(), *there.network.buffers()]} == {far}
    check_same(data, there, here, folders)
    moved = ml.Model.load(tmp_path / "cpu", device="auto")
    assert moved.network.device == far
    check_same(data, moved, here, folders)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU, and CUDA_VISIBLE_DEVICES set")
@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_a_run_on_a_real_gpu_learns_as_on_the_cpu(data, run, tmp_path):
    there, here = (train(data, tmp_path / device, run, device=device) for device in ("cuda", "cpu"))
    assert there.network.device == torch.device("cuda", 0)
    actual, expected = (model.evaluate(data).metrics["P@1"] for model in (there, here))
    assert actual == pytest.approx(expected, abs=10)  # percent of 40 rows; dropout is not drawn alike
    assert ml.Model.load(tmp_path / "cuda", device="cpu").evaluate(data).metrics["P@1"] == pytest.approx(actual, abs=3)


def test_stages_and_candidates(data, far, tmp_path):
    changes = [
        *BAG, "encoder.options={dim: 16, words: 512, bigrams: 0, characters: 0, residual: false}",
        "batching.negatives={mined: 10, top: 20, uniform: 5}", "spaces.clusters.size=8",
    ]  # fmt: skip
    there, here = (train(data, tmp_path / device, ["astec-cpu", *changes], device=device) for device in BOTH)
    assert there.network.device == far
    check_same(data, there, here, [tmp_path / device for device in BOTH])


def test_transformer(data, tiny_model, far, tmp_path):
    there, _ = (train(data, tmp_path / device, transformer(tiny_model), device=device) for device in BOTH)
    assert there.network.device == far
    actual, expected = (weights(tmp_path / device) for device in BOTH)  # padded there, packed here
    torch.testing.assert_close(actual, expected, atol=2e-4, rtol=1e-3)


@pytest.mark.parametrize(("first", "then"), [("auto", "cpu"), ("cpu", "auto")])
def test_a_run_resumes_on_another_device(data, first, then, far, tmp_path, monkeypatch):
    run = [*RUNS["clusters and mined pools"], "training.tables={kind: lazy_adamw, lr: 0.01}"]
    whole = train(data, tmp_path / "whole", run, device="cpu")
    save = phases.save_checkpoint

    def save_and_stop(*args, **options):
        save(*args, **options)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(phases, "save_checkpoint", save_and_stop)
        train(data, tmp_path / "run", run, device=first)
    with pytest.raises(DataError, match="precision was auto and is now float32"):
        train(data, tmp_path / "run", [*run, "training.precision=float32"], device=then, resume=True)
    model = train(data, tmp_path / "run", run, device=then, resume=True)
    check_same(data, model, whole, (tmp_path / "run", tmp_path / "whole"))


def test_tensors_left_on_the_cpu_are_detected(data, far, monkeypatch):
    with pytest.raises(RuntimeError, match="two devices"):
        torch.ones(2, device=far) + torch.ones(2)
    with pytest.raises(RuntimeError, match="numpy"):
        torch.ones(2, device=far).numpy()
    monkeypatch.setattr(Batch, "to", lambda batch, device: batch)
    with pytest.raises(RuntimeError, match="two devices"):
        train(data, None, RUNS["clusters and mined pools"])


@pytest.mark.parametrize("name", ["cuda", "cuda:7", "mps", "gpu"])
def test_a_missing_device_stops_the_run_immediately(data, name, tmp_path, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("torch.backends.mps.is_available", lambda: False)
    with pytest.raises(SettingError, match=f"there is no device '{name}'"):
        train(data, tmp_path / "run", RUNS["clusters and mined pools"], device=name)
    with pytest.raises(SettingError, match="there is no device"):
        train(data, tmp_path / "run", [*RUNS["clusters and mined pools"], f"training.device={name}"])
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("kind", ["bag", "inception", "transformer"])
def test_half_precision_learns_as_well(data, kind, tiny_model, tmp_path, monkeypatch):
    runs = {"bag": RUNS["clusters and mined pools"], "inception": RUNS["convolutions"]}
    run = runs.get(kind) or transformer(tiny_model)
    types = set()

    def look(parameters, most):
        types.update(parameter.grad.dtype for parameter in parameters if parameter.grad is not None)

    def query(head, encoded, *, search=False, plain=DenseHead.query):
        types.add(encoded.dtype)
        return plain(head, encoded, search=search)

    monkeypatch.setattr(looping, "clip_gradients", look)
    monkeypatch.setattr(DenseHead, "query", query)
    losses = {}
    for precision in ("float32", "bfloat16"):
        changes = ["training.clip=1.0", f"training.precision={precision}"]
        train(data, tmp_path / precision, [*run, *changes], device="cpu")
        rows = read_log(tmp_path / precision / "metrics.jsonl")
        losses[precision] = [row["loss"] for row in rows if "loss" in row]
    assert types == {torch.float32}
    assert losses["bfloat16"] != losses["float32"]
    assert losses["bfloat16"] == pytest.approx(losses["float32"], rel=0.02)
    assert {value.dtype for value in weights(tmp_path / "bfloat16").values()} == {torch.float32}
