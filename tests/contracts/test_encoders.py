"""Every encoder keeps the contract of megalabel.types.Encoder."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from megalabel.data.tokens import store_tokens
from megalabel.encoders import (
    BagEncoder,
    InceptionEncoder,
    InceptionXMLEncoder,
    TransformerEncoder,
    build_encoder,
    load_encoder,
)
from megalabel.errors import DataError, MegalabelError, SettingError
from megalabel.network import GradientCache
from megalabel.types import Encoder, Tokens

TEXTS = ["red shoe", "", "a blue, blue hat", "shoe", "zq naïve 中文 " * 5, "red shoe", "!", "a"]
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "red", "blue", "shoe", "hat", "a", "##s", "!", ","]


def tiny_tokenizer():
    vocabulary = {word: number for number, word in enumerate(WORDS)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return tokenizer


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory):
    """A random BERT of two layers with a dozen tokens."""
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("tiny")
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    PreTrainedTokenizerFast(tokenizer_object=tiny_tokenizer(), model_max_length=64, **special).save_pretrained(folder)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
    torch.manual_seed(0)
    BertModel(BertConfig(vocab_size=len(WORDS), max_position_embeddings=64, **sizes)).save_pretrained(folder)
    return str(folder)


CONFIGS = {
    "bag": {"kind": "bag", "source": None, "dim": 12, "words": 64, "bigrams": 128, "characters": 256},
    "bag of subwords": {"kind": "bag", "source": "tiny", "dim": 12, "words": 0, "bigrams": 0, "characters": 0},
    "bag of all": {"kind": "bag", "source": "tiny", "dim": 24, "words": 64, "bigrams": 64, "characters": 64},
    "inception": {"kind": "inception", "source": None, "dim": 20, "words": 64, "filters": 3, "bins": 2, "channels": 4},
    "inception of subwords": {"kind": "inception", "source": "tiny", "dim": 16, "filters": 3, "bins": 2}
    | {"max_length": 12},
    "inceptionxml": {"kind": "inceptionxml", "source": None, "token_dim": 80, "words": 64, "filters": 4},
    "inceptionxml of subwords": {"kind": "inceptionxml", "source": "tiny", "token_dim": 64, "filters": 5}
    | {"max_length": 12},
    "mean": {"kind": "transformer", "source": "tiny", "dropout": 0, "max_length": 16, "batch_tokens": 20},
    "cls": {"kind": "transformer", "source": "tiny", "dropout": 0.0, "max_length": 40}
    | {"pooling": "cls", "layers": 2, "projection": 5},
}


@pytest.fixture(params=CONFIGS)
def encoder(request, tiny_model):
    config = CONFIGS[request.param]
    return build_encoder(config | {"source": tiny_model if config["source"] == "tiny" else None})


def close(actual, expected):
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)


def test_is_an_encoder(encoder):
    assert isinstance(encoder, Encoder)
    assert isinstance(encoder, torch.nn.Module)
    vectors = encoder(encoder.tokenise(TEXTS))
    assert vectors.shape == (len(TEXTS), encoder.dim)
    assert vectors.requires_grad
    assert vectors.dtype == torch.float32


def test_layers_are_refused_by_encoders_of_one_layer(encoder):
    if encoder.kind != "transformer":  # which has several
        for call in (encoder, encoder.encode):
            with pytest.raises(SettingError, match=rf"layers is \[1\], but the encoder '{encoder.kind}' has one layer"):
                call(encoder.tokenise(TEXTS), layers=[1])


def test_folder_gives_the_same_encoder_without_its_source(encoder, tmp_path, monkeypatch):
    tokens = encoder.tokenise(TEXTS)
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter += 0.01
    encoder.save(tmp_path / "kept")
    monkeypatch.setattr("megalabel.encoders._source.find_spec", lambda name: pytest.fail("looked for a package"))
    monkeypatch.setattr("socket.socket.connect", lambda *_: pytest.fail("touched the network"))
    again = load_encoder(tmp_path / "kept")
    assert again.config() == encoder.config() == json.loads(json.dumps(encoder.config()))
    assert again.fingerprint() == encoder.fingerprint()
    assert again.dim == encoder.dim
    assert torch.equal(again.encode(tokens), encoder.encode(tokens))
    assert np.array_equal(again.tokenise(TEXTS).ids, tokens.ids)
    assert not [path for path in (tmp_path / "kept").rglob("*") if path.suffix not in (".json", ".safetensors")]
    again.save(tmp_path / "kept")  # a folder may replace itself
    assert torch.equal(load_encoder(tmp_path / "kept").encode(tokens), encoder.encode(tokens))


def test_built_twice_is_the_same_and_leaves_the_generator_alone(encoder):
    state = torch.get_rng_state()
    again = build_encoder(encoder.config())
    assert torch.equal(state, torch.get_rng_state())
    tokens = encoder.tokenise(TEXTS)
    assert torch.equal(again.encode(tokens), encoder.encode(tokens))


def test_other_texts_do_not_change_a_vector(encoder):
    tokens = encoder.tokenise(TEXTS)
    whole = encoder.encode(tokens)
    close(torch.cat([encoder.encode(encoder.tokenise([text])) for text in TEXTS]), whole)
    turned = np.arange(len(TEXTS))[::-1]
    close(encoder.eval()(tokens.take(turned)).detach(), whole[turned.copy()])


def test_same_text_once(encoder):
    tokens = encoder.tokenise(TEXTS)
    few, inverse = tokens.unique()
    assert len(few) < len(tokens)
    close(encoder.encode(few).index_select(0, torch.from_numpy(inverse)), encoder.encode(tokens))


def test_no_rows_at_all(encoder):
    assert encoder.encode(encoder.tokenise([])).shape == (0, encoder.dim)
    assert encoder(encoder.tokenise([])).shape == (0, encoder.dim)
    assert encoder.tokenise([]).ids.dtype == encoder.tokenise(TEXTS).ids.dtype
    assert encoder.encode(encoder.tokenise([""])).isfinite().all()


def test_gradient_reaches_every_part_and_is_finite(encoder):
    vectors = torch.nn.functional.normalize(encoder(encoder.tokenise(TEXTS)), dim=1)
    (vectors @ torch.randn(encoder.dim, generator=torch.Generator().manual_seed(1))).sum().backward()
    for name, parameter in encoder.named_parameters():
        if parameter.requires_grad:
            assert parameter.grad is not None, name
            gradient = parameter.grad.to_dense()
            assert gradient.isfinite().all() and gradient.abs().max() < 1e4, name


def test_gradient_cache_equals_plain(encoder):
    if encoder.kind == "inceptionxml":
        encoder.eval()  # in training the statistics of a batch are not those of its chunks
    tokens = encoder.tokenise(TEXTS)
    aim = torch.randn(len(TEXTS), encoder.dim, generator=torch.Generator().manual_seed(1))
    gradients = []
    for encode in (encoder, lambda tokens: GradientCache(chunk_size=3).encode(encoder, tokens, max_length=9)):
        encoder.zero_grad()
        vectors = encode(tokens, max_length=9) if encode is encoder else encode(tokens)
        ((vectors - aim) ** 2).sum().backward()
        gradients.append([p.grad.to_dense().clone() for p in encoder.parameters() if p.requires_grad])
    for plain, cached in zip(*gradients, strict=True):
        close(cached, plain)


def test_encode_restores_the_mode_of_every_module(encoder):
    encoder.train()
    quiet = list(encoder.modules())[-1].eval()
    encoder.encode(encoder.tokenise(["red"]))
    assert encoder.training or quiet is encoder
    assert not quiet.training


def test_lengths_are_cut(encoder):
    tokens, rows = encoder.tokenise(TEXTS), np.arange(len(TEXTS))
    special = 2 if encoder.kind == "transformer" else 0
    close(encoder.encode(tokens, max_length=6), encoder.encode(tokens.take(rows, 6 - special)))
    assert not torch.equal(encoder.encode(tokens, max_length=6), encoder.encode(tokens))


def test_normalised_on_request(encoder):
    tokens = encoder.tokenise(["red shoe", "hat"])
    close(encoder.encode(tokens, normalise=True).norm(dim=1), torch.ones(2))


def test_tokens_can_be_stored(encoder, tmp_path):
    stored = store_tokens(TEXTS, encoder, folder=tmp_path)
    assert isinstance(stored.ids, np.memmap)
    assert np.array_equal(stored.ids, encoder.tokenise(TEXTS).ids)
    assert torch.equal(encoder.encode(stored), encoder.encode(encoder.tokenise(TEXTS)))
    encoder(stored).sum().backward()


def test_two_threads_give_the_same_bits(encoder):
    threads = torch.get_num_threads()
    tokens = encoder.tokenise(TEXTS)

    def gradients():
        encoder.zero_grad()
        encoder(tokens).square().sum().backward()
        return [p.grad.to_dense().clone() for p in encoder.parameters() if p.requires_grad]

    try:
        torch.set_num_threads(2)
        first, *others = [gradients() for _ in range(2)]
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(a, b) for other in others for a, b in zip(first, other, strict=True))


@settings(max_examples=30)
@given(texts=st.lists(st.text(max_size=12), max_size=5))
def test_any_text_is_tokenised_on_its_own(bag, texts):
    tokens = bag.tokenise(texts)
    assert isinstance(tokens, Tokens)
    assert [tokens[i].tolist() for i in range(len(texts))] == [bag.tokenise([text]).ids.tolist() for text in texts]
    assert bag.encode(tokens).isfinite().all()


@pytest.fixture(scope="module")
def bag(tiny_model):
    return build_encoder(CONFIGS["bag of all"] | {"source": tiny_model})


def test_another_process_gives_the_same_rows_and_vectors(bag):
    code = (
        "import sys, json, hashlib; from megalabel.encoders import build_encoder\n"
        "config, texts = json.load(sys.stdin); encoder = build_encoder(config); tokens = encoder.tokenise(texts)\n"
        "vectors = encoder.encode(tokens).numpy().tobytes()\n"
        "print(json.dumps([encoder.fingerprint(), tokens.ids.tolist(), hashlib.sha256(vectors).hexdigest()]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps([bag.config(), TEXTS]),
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONHASHSEED": "12345", "OMP_NUM_THREADS": str(torch.get_num_threads())},
    )
    from hashlib import sha256

    tokens = bag.tokenise(TEXTS)
    here = [bag.fingerprint(), tokens.ids.tolist(), sha256(bag.encode(tokens).numpy().tobytes()).hexdigest()]
    assert json.loads(done.stdout) == here


def test_other_settings_are_another_fingerprint(tiny_model):
    base = CONFIGS["bag"]
    changes = [{}, {"words": 32}, {"bigrams": 0}, {"ngrams": [3]}, {"source": tiny_model}]
    assert len({build_encoder(base | change).fingerprint() for change in changes}) == len(changes)
    assert build_encoder(base | {"dim": 3, "seed": 5}).fingerprint() == build_encoder(base).fingerprint()


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"kind": "transfomer"}, "did you mean 'transformer'"),
        ({}, "bag, inception, inceptionxml, transformer"),
        ({"kind": "bag", "dims": 3}, "did you mean 'dim'"),
        ({"kind": "bag", "words": 1000}, "1024"),
        ({"kind": "bag", "source": None, "words": 0, "bigrams": 0, "characters": 0}, "no features"),
        ({"kind": "bag", "ngrams": []}, "ngrams"),
        ({"kind": "bag", "dim": 0}, "dim"),
        ({"kind": "bag", "max_length": 0}, "max_length"),
        ({"kind": "bag", "source": "not-here"}, "not-here"),
        ({"kind": "inception", "dim": 12}, "at least 16"),
        ({"kind": "inception", "words": 1000}, "1024"),
        ({"kind": "inception", "bins": 0}, "bins"),
        ({"kind": "inception", "source": "not-here"}, "not-here"),
        ({"kind": "inceptionxml", "token_dim": 60}, "at least 64"),
        ({"kind": "inceptionxml", "words": 1000}, "1024"),
        ({"kind": "inceptionxml", "filters": 0}, "filters"),
        ({"kind": "transformer", "source": "./not-here"}, "no such folder"),
        ({"kind": "transformer", "source": __file__}, "this is a file"),
        ({"kind": "transformer", "source": "tiny", "pooling": "max", "max_length": 9}, "mean or cls"),
        ({"kind": "transformer", "source": "tiny", "layers": 3, "max_length": 9}, "1 to 2"),
        ({"kind": "transformer", "source": "tiny", "max_length": 65}, "3 to 64"),
        ({"kind": "transformer", "source": "tiny", "max_length": 2}, "3 to 64"),
    ],
)
def test_wrong_settings_give_one_line(config, words, tiny_model):
    if config.get("source") == "tiny":
        config = config | {"source": tiny_model}
    with pytest.raises(SettingError, match=words) as error:
        build_encoder(config)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("damage", ["missing", "broken", "other"])
@pytest.mark.parametrize("name", ["encoder.json", "tokenizer.json", "weights"])
def test_a_damaged_folder_gives_one_line(encoder, tmp_path, name, damage):
    encoder.save(tmp_path)
    if name == "weights":
        name = "model.safetensors" if encoder.kind == "transformer" else f"{encoder.kind}.safetensors"
    path = tmp_path / name
    if not path.exists():
        pytest.skip("this one has no tokenizer")
    path.unlink()
    if damage == "broken":
        path.write_bytes(b'{"kind')
    elif damage == "other":
        path.write_bytes(b"[1]" if name.endswith(".json") else b"\x08\x00\x00\x00\x00\x00\x00\x00{}      ")
    with pytest.raises(MegalabelError) as error:
        load_encoder(tmp_path)
    assert "\n" not in str(error.value)


def test_a_missing_folder_gives_one_line(tmp_path):
    with pytest.raises(DataError, match="no such folder"):
        load_encoder(tmp_path / "nowhere")


def test_classes_are_public():
    classes = (BagEncoder, InceptionEncoder, InceptionXMLEncoder, TransformerEncoder)
    assert [encoder.kind for encoder in classes] == ["bag", "inception", "inceptionxml", "transformer"]
