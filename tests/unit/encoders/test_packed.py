"""Packed texts give the vectors of padded ones, for models of several families; dropout has the right rate."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from megalabel.encoders import TransformerEncoder
from megalabel.encoders._packed import FastDropout, Runs, _Attention, dropout_noise, use_fast_dropout

TEXTS = ["a b", "b", "", "a b a b b", "b a", "a a a", "b b a"]
SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}


def make(folder, family):
    import transformers as hf

    vocabulary = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "a": 4, "b": 5}
    if family == "roberta":
        vocabulary = {"[CLS]": 0, "[PAD]": 1, "[SEP]": 2, "[UNK]": 3, "a": 4, "b": 5}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    ends = [(token, vocabulary[token]) for token in ("[SEP]", "[CLS]")]
    tokenizer.post_processor = processors.BertProcessing(*ends)
    hf.PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]").save_pretrained(folder)
    torch.manual_seed(0)
    common = {"vocab_size": 6, "max_position_embeddings": 16}
    model = {
        "bert": lambda: hf.BertModel(hf.BertConfig(**common, **SIZES)),
        "roberta": lambda: hf.RobertaModel(hf.RobertaConfig(pad_token_id=1, **common, **SIZES)),
        "distilbert": lambda: hf.DistilBertModel(
            hf.DistilBertConfig(dim=16, n_layers=2, n_heads=2, hidden_dim=24, **common)
        ),
        "mpnet": lambda: hf.MPNetModel(hf.MPNetConfig(**common, **SIZES)),
    }[family]()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.5)  # far enough from nothing for every mistake to show
    model.save_pretrained(folder)
    return str(folder)


def both(encoder, tokens):
    """Return vectors and gradients, packed and padded."""
    actual = []
    for packs in (True, False):
        encoder._packs = packs
        encoder.zero_grad()
        vectors = encoder(tokens)
        (vectors * torch.arange(vectors.numel()).view_as(vectors).cos()).sum().backward()
        actual.append([vectors.detach(), *(p.grad.clone() for p in encoder.parameters() if p.grad is not None)])
    return actual


@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert"])
@pytest.mark.parametrize("options", [{}, {"pooling": "cls", "layers": 2, "projection": 3}])
def test_same_as_padded(tmp_path, family, options):
    encoder = TransformerEncoder(make(tmp_path, family), max_length=8, dropout=0.0, **options)
    assert encoder._packs
    packed, padded = both(encoder, encoder.tokenise(TEXTS))
    assert len(packed) == len(padded) > 10
    for one, other in zip(packed, padded, strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)


def test_an_unsupported_model_is_padded(tmp_path):
    encoder = TransformerEncoder(make(tmp_path, "mpnet"), max_length=8)
    assert not encoder._packs
    assert encoder.encode(encoder.tokenise(TEXTS)).isfinite().all()


def test_an_attention_with_a_window_is_padded(tmp_path, monkeypatch):
    from megalabel.encoders import _packed

    plain = _packed._attend
    monkeypatch.setattr(_packed, "_attend", lambda *parts, **options: plain(*parts, sliding_window=4, **options))
    assert not TransformerEncoder(make(tmp_path, "bert"), max_length=8)._packs
    monkeypatch.undo()
    assert TransformerEncoder(str(tmp_path), max_length=8)._packs


def test_dropout_draws_the_same_for_the_same_state(tmp_path):
    encoder = TransformerEncoder(make(tmp_path, "bert"), max_length=8, dropout=0.5)
    tokens = encoder.tokenise(TEXTS)
    actual = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        actual.append(encoder(tokens).detach())
    assert torch.equal(actual[0], actual[1]) and not torch.equal(actual[0], actual[2])


def test_gradient_of_attention():
    torch.manual_seed(0)
    runs = Runs.of(np.array([3, 3, 2, 1]))
    parts = [torch.randn(9, 2, 3, dtype=torch.float64, requires_grad=True) for _ in range(3)]

    def attend(*parts, dropout):
        torch.manual_seed(5)
        return _Attention.apply(*parts, runs, 0.7, dropout)

    for dropout in (0.0, 0.4):
        assert torch.autograd.gradcheck(lambda *parts, rate=dropout: attend(*parts, dropout=rate), parts)


@settings(max_examples=40, deadline=None)
@given(lengths=st.lists(st.integers(1, 5), min_size=1, max_size=9), heads=st.integers(1, 3))
def test_attention_stays_within_a_text(lengths, heads):
    generator = torch.Generator().manual_seed(len(lengths))
    q, k, v = (torch.randn(sum(lengths), heads, 4, generator=generator) for _ in range(3))
    actual = _Attention.apply(q, k, v, Runs.of(np.array(lengths)), 0.5, 0.0).split(lengths)
    for part, *own in zip(actual, q.split(lengths), k.split(lengths), v.split(lengths), strict=True):
        heads_first = (rows.transpose(0, 1) for rows in own)
        expected = torch.nn.functional.scaled_dot_product_attention(*heads_first, scale=0.5).transpose(0, 1)
        torch.testing.assert_close(part, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_rate_and_scale(p):
    torch.manual_seed(0)
    noise = dropout_noise(torch.empty(1_000, 401), p)
    dropped = (noise == 0).double()
    assert abs(float(dropped.mean()) - p) < 4 * (p * (1 - p) / dropped.numel()) ** 0.5 + 2**-17
    assert float(noise.max()) == pytest.approx(1 / (1 - p), rel=1e-4)
    assert len(noise.unique()) == 2
    assert float(noise.double().mean()) == pytest.approx(1, abs=4 * (p / (1 - p) / noise.numel()) ** 0.5)
    flat = dropped.flatten()
    for gap in (1, 2, 3, 4, 401):  # four neighbours share one draw
        together = float((flat[gap:] * flat[:-gap]).mean())
        assert together == pytest.approx(p * p, abs=4 * (p * p / flat.numel()) ** 0.5)


@pytest.mark.parametrize("shape", [(), (1,), (3,), (5, 7), (0, 4)])
def test_any_shape_and_type(shape):
    noise = dropout_noise(torch.empty(shape, dtype=torch.float64), 0.5)
    assert noise.shape == shape and noise.dtype == torch.float64


def test_nothing_and_everything():
    ones = torch.ones(50)
    assert torch.equal(FastDropout(0.0)(ones), ones)
    assert torch.equal(FastDropout(1.0)(ones), torch.zeros(50))
    assert FastDropout(0.5).eval()(ones) is ones


def test_gradient_passes_where_the_input_does():
    inputs = torch.randn(40, requires_grad=True)
    torch.manual_seed(3)
    FastDropout(0.25)(inputs).sum().backward()
    torch.manual_seed(3)
    assert torch.equal(inputs.grad, dropout_noise(inputs, 0.25))


def test_replaces_plain_dropout_only():
    class Other(torch.nn.Dropout):
        pass

    model = torch.nn.Sequential(torch.nn.Dropout(0.3), torch.nn.Sequential(torch.nn.Dropout(0.2)), Other(0.1))
    use_fast_dropout(model)
    assert [type(part) for part in (model[0], model[1][0], model[2])] == [FastDropout, FastDropout, Other]
    assert (model[0].p, model[1][0].p) == (0.3, 0.2)
