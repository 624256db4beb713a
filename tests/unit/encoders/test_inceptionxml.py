"""InceptionXML's published encoder: formula, batch statistics, gradient cache, initial values."""

import math

import numpy as np
import pytest
import torch

from megalabel.encoders import InceptionXMLEncoder, load_encoder
from megalabel.encoders.inceptionxml import BatchNorm, pooled_length
from megalabel.errors import DataError
from megalabel.network import GradientCache

SMALL = {"token_dim": 70, "words": 128, "filters": 3, "max_length": 5}
TEXTS = ["red shoe", "a blue, blue hat", "", "shoe", "red", "one two three four five six seven"]


def lively(**options):
    """Return a small encoder whose every part counts."""
    made = InceptionXMLEncoder(None, **SMALL | options)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in (made.gains, *made.biases, *(part for norm in made.norms for part in norm.parameters())):
            parameter.normal_(generator=generator)
        made.gains.mul_(0.1)
        for norm in made.norms:
            norm.mean.normal_(generator=generator)
            norm.variance.uniform_(0.5, 2, generator=generator)
    return made


# ------------------------------------------------------------------ the formula, number by number


def gelu(x):
    return 0.5 * x * (1 + math.erf(x / math.sqrt(2)))


def normed(norm, channel, value):
    mean, variance, weight, bias = (part[channel].item() for part in (norm.mean, norm.variance, norm.weight, norm.bias))
    return (value - mean) / math.sqrt(variance + 1e-5) * weight + bias


def divided(matrix):
    return matrix / np.linalg.svd(matrix)[1][0]


def attended(encoder, x):
    """U of the docstring, in the order in which it is written."""
    w1, w2 = (divided(part.detach().double().numpy()) for part in (encoder.attend_tokens, encoder.attend_dims))
    g1, g2 = encoder.gains.tolist()
    h = x + g1 * (x @ x.T) @ (w1 @ x)
    return (h.T + g2 * (h.T @ x) @ (w2 @ h.T)).T


def plain(encoder, ids):
    """The vector of one text, with explicit loops."""
    length, d, filters = encoder.max_length, encoder.token_dim, encoder.filters
    x = np.zeros((length, d))
    for place, row in enumerate(ids[:length]):
        x[place] = encoder.table[int(row)].detach().double().numpy()
    u = attended(encoder, x)
    bias = [part.tolist() for part in encoder.biases]
    mix, mixed = encoder.mix.tolist(), np.zeros((filters, d))
    for f in range(filters):
        for j in range(d):
            value = bias[0][f] + sum(mix[f][t] * u[t, j] for t in range(length))
            mixed[f, j] = normed(encoder.norms[0], f, gelu(value))
    maps = np.zeros((3 * filters, d // 4))
    for number, kernel in enumerate(encoder.kernels):
        width = kernel.shape[2]
        for f in range(filters):
            for j in range(d // 4):
                first = 4 * j - (width - 4) // 2
                around = mixed[:, [(first + a) % d for a in range(width)]]
                channel = number * filters + f
                value = bias[1][channel] + float((kernel[f].detach().double().numpy() * around).sum())
                maps[channel, j] = normed(encoder.norms[1], channel, gelu(value))
    flat = []
    for f in range(filters):
        for j in range(pooled_length(d)):
            window = maps[:, 4 * j : 4 * j + 16]
            value = bias[2][f] + float((encoder.second[f].detach().double().numpy() * window).sum())
            flat.append(normed(encoder.norms[2], f, gelu(value)))
    hidden = encoder.layer.detach().double().numpy() @ np.array(flat) + np.array(bias[3])
    return [z + normed(encoder.norms[3], c, gelu(value)) for c, (z, value) in enumerate(zip(flat, hidden, strict=True))]


@pytest.mark.parametrize("token_dim", [64, 70, 81])
def test_vector_is_that_of_the_formula(token_dim):
    encoder = lively(token_dim=token_dim)
    tokens = encoder.tokenise(TEXTS)
    vectors = encoder.encode(tokens)
    assert vectors.shape == (len(TEXTS), 3 * pooled_length(token_dim))
    for row in (1, 2, 5):
        expected = torch.tensor(plain(encoder, tokens[row]))
        torch.testing.assert_close(vectors[row].double(), expected, atol=1e-4, rtol=1e-4)


def test_ends_of_a_vector_are_joined():
    """A window that begins before the first dimension reads the last ones."""
    encoder = lively(token_dim=64).eval()
    with torch.no_grad():
        encoder.gains.zero_()
    tokens = encoder.tokenise(["red"])
    before = encoder.encode(tokens)
    with torch.no_grad():
        encoder.kernels[0].zero_()
        encoder.second[:, :, 1:] = 0  # reads the first position of every map only
        alone = encoder.encode(tokens)
        encoder.table[int(tokens.ids[0]), -6:] += 1
    assert not torch.equal(encoder.encode(tokens), alone)
    assert not torch.equal(before, alone)


# ------------------------------------------------------------------ batch statistics


def test_batch_norm_is_that_of_torch():
    ours, theirs = BatchNorm(3), torch.nn.BatchNorm1d(3)
    generator = torch.Generator().manual_seed(0)
    for shape in ((5, 3), (4, 3, 7), (2, 3)):
        values = torch.randn(shape, generator=generator)
        assert torch.equal(ours(values), theirs(values))
    assert torch.equal(ours.mean, theirs.running_mean) and torch.equal(ours.variance, theirs.running_var)
    assert torch.equal(ours.eval()(values), theirs.eval()(values))


@pytest.mark.parametrize("shape", [(1, 3), (1, 3, 1)])
def test_one_value_has_no_spread(shape):
    norm = BatchNorm(3)
    torch.nn.init.normal_(norm.bias)
    values = torch.randn(shape, requires_grad=True)
    output = norm(values)
    assert torch.equal(output.flatten(), norm.bias)
    output.sum().backward()
    assert values.grad is None and torch.equal(norm.weight.grad, torch.zeros(3))
    assert torch.equal(norm.mean, torch.zeros(3)) and torch.equal(norm.variance, torch.ones(3))


def test_a_step_of_one_text_is_finite():
    encoder = lively(token_dim=64)
    encoder(encoder.tokenise(["red"])).sum().backward()
    assert all(part.grad is None or part.grad.to_dense().isfinite().all() for part in encoder.parameters())


@pytest.mark.parametrize("rate", [0.0, 0.3])
def test_gradient_cache_is_exact_for_statistics_of_chunks(rate):
    """Gradients are those of chunks encoded one by one, and running statistics move once for each."""
    aim = torch.randn(len(TEXTS), 3, generator=torch.Generator().manual_seed(1))
    results = []
    for cached in (False, True):
        encoder = lively(token_dim=64, dropout=rate, token_dropout=rate).double()
        tokens = encoder.tokenise(TEXTS)
        torch.manual_seed(5)
        if cached:
            vectors = GradientCache(chunk_size=4).encode(encoder, tokens)
        else:
            vectors = torch.cat([encoder(tokens.take(np.arange(4))), encoder(tokens.take(np.arange(4, 6)))])
        ((vectors - aim) ** 2).sum().backward()
        gradients = [part.grad.to_dense() for part in encoder.parameters()]
        results.append([vectors.detach(), *gradients, *encoder.buffers()])
    for plain_result, cached_result in zip(*results, strict=True):
        torch.testing.assert_close(cached_result, plain_result)


def test_statistics_of_a_whole_batch_if_it_fits_into_one_chunk():
    encoder = lively(token_dim=64)
    tokens = encoder.tokenise(TEXTS)
    expected = encoder(tokens)
    assert torch.equal(GradientCache(chunk_size=len(TEXTS)).encode(encoder, tokens), expected)


def test_running_statistics_are_saved_and_loaded(tmp_path):
    encoder = lively()
    tokens = encoder.tokenise(TEXTS)
    encoder(tokens)
    encoder.save(tmp_path)
    again = load_encoder(tmp_path)
    assert all(torch.equal(a, b) for a, b in zip(encoder.buffers(), again.buffers(), strict=True))
    assert torch.equal(again.encode(tokens), encoder.encode(tokens))


# ------------------------------------------------------------------ the rest


def test_table_gets_a_sparse_gradient_with_each_row_once():
    encoder = lively()
    encoder(encoder.tokenise(["red red shoe", "shoe"])).sum().backward()
    assert [parameter.grad.is_sparse for parameter in encoder.sparse_parameters()] == [True]
    rows = encoder.table.grad._indices()[0]
    assert len(rows) == 2 and rows[0] < rows[1]


def test_padding_to_the_longest_text_equals_padding_to_max_length():
    encoder = lively(token_dim=64, max_length=12).eval()
    alone = encoder(encoder.tokenise(["red shoe"]))
    beside = encoder(encoder.tokenise(["red shoe", "one two three four five six seven eight nine ten"]))[:1]
    torch.testing.assert_close(alone, beside)


def test_attention_does_nothing_at_the_start():
    encoder = InceptionXMLEncoder(None, **SMALL)
    vectors = torch.randn(2, 4, 70)
    assert torch.equal(encoder._attend(vectors), vectors)
    assert encoder.gains.tolist() == [0, 0]


def test_sizes_of_the_paper():
    encoder = InceptionXMLEncoder(None, words=64)
    assert encoder.dim == 480
    assert [tuple(kernel.shape) for kernel in encoder.kernels] == [(32, 32, 4), (32, 32, 8), (32, 32, 16)]
    assert tuple(encoder.second.shape) == (32, 96, 16) and tuple(encoder.layer.shape) == (480, 480)
    limit = math.sqrt(6 / (16 * (32 + 96)))  # Xavier
    assert 0.9 * limit < encoder.second.abs().max() <= limit


def test_dropout_is_for_training_only():
    encoder = lively(dropout=0.5, token_dropout=0.5)
    tokens = encoder.tokenise(TEXTS)
    assert not torch.equal(encoder(tokens), encoder(tokens))
    assert torch.equal(encoder.encode(tokens), encoder.encode(tokens))


def test_minilm_vectors_are_cut_to_their_main_directions():
    encoder = InceptionXMLEncoder("minilm", token_dim=64, filters=2)
    assert encoder.table.detach().norm(dim=1).mean() == pytest.approx(1, abs=0.3)
    assert encoder.tokenise(["red shoe"]).ids.max() < len(encoder.table)


def test_seed_decides_the_start():
    first, same, other = (InceptionXMLEncoder(None, **SMALL, seed=seed).second for seed in (1, 1, 2))
    assert torch.equal(first, same)
    assert not torch.equal(first, other)


def test_auto_source_is_resolved(monkeypatch):
    monkeypatch.setattr("megalabel.encoders.inceptionxml.has_minilm", lambda: False)
    assert InceptionXMLEncoder(**SMALL).config()["source"] is None


def test_saved_encoder_is_a_start_for_the_same_settings(tmp_path):
    InceptionXMLEncoder(None, **SMALL, seed=4).save(tmp_path)
    again = InceptionXMLEncoder(str(tmp_path), **SMALL)
    assert torch.equal(again.layer, load_encoder(tmp_path).layer)
    with pytest.raises(DataError, match="was expected"):
        InceptionXMLEncoder(str(tmp_path), **SMALL | {"filters": 4})
