"""InceptionXML's encoder: formula, initial values, lengths."""

import numpy as np
import pytest
import torch
from torch.nn.functional import conv1d

from megalabel.encoders import InceptionEncoder, load_encoder
from megalabel.encoders.inception import window_maxima
from megalabel.errors import DataError

SMALL = {"dim": 32, "words": 128, "channels": 4, "filters": 3, "bins": 2, "attention": 5}
TEXTS = ["red shoe", "a blue, blue hat", "", "shoe", "red"]


@pytest.fixture
def encoder():
    """A small encoder whose every part counts."""
    made = InceptionEncoder(None, **SMALL).eval()
    made.fit(made.tokenise(TEXTS))
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in (made.gate, made.layer, made.bias, made.attend):
            parameter.normal_(generator=generator)
    return made


def plain(encoder, ids):
    """The formula of the docstring, token by token."""
    v = encoder.table[ids]
    w = encoder.weights[ids, 0]
    query, key = (v @ part.T for part in encoder.attend.chunk(2))
    attention = torch.softmax(query @ key.T / encoder.attention**0.5, dim=1)
    u = (torch.eye(len(ids)) + attention) @ (w.unsqueeze(1) * v) / w.norm()
    total = u.sum(0)
    gate = 2 * torch.sigmoid(encoder.gate @ torch.relu(encoder.squeeze @ total))
    mixed = torch.cat([encoder.mix[:, : len(ids)], torch.ones(1, len(ids))]) @ u * gate
    parts = []
    for kernel in encoder.kernels:
        actual = conv1d(mixed.unsqueeze(0), kernel, stride=kernel.shape[2] // 2)[0]
        each = -(-actual.shape[1] // encoder.bins)
        parts.append(torch.stack([actual[:, each * b : each * (b + 1)].amax(1) for b in range(encoder.bins)]).flatten())
    vector = encoder.layer @ torch.relu(torch.cat(parts) + encoder.bias)
    return vector + total * gate if encoder.residual else vector


@pytest.mark.parametrize("residual", [True, False])
def test_vector_is_that_of_the_formula(encoder, residual):
    encoder.residual = residual
    tokens = encoder.tokenise(TEXTS)
    vectors = encoder(tokens)
    for row in (0, 1, 3, 4):
        ids = torch.from_numpy(tokens[row].astype(np.int64))
        torch.testing.assert_close(vectors[row], plain(encoder, ids), atol=1e-4, rtol=1e-4)


def test_gradients_are_those_of_the_formula(encoder):
    tokens = encoder.tokenise(["red shoe red", "a blue hat"])
    names = [name for name, _ in encoder.named_parameters()]
    aim = torch.randn(2, encoder.dim, generator=torch.Generator().manual_seed(1))
    actual = torch.autograd.grad((encoder(tokens) * aim).sum(), list(encoder.parameters()))
    rows = [torch.from_numpy(tokens[row].astype(np.int64)) for row in range(2)]
    expected = torch.autograd.grad(
        sum((plain(encoder, ids) * part).sum() for ids, part in zip(rows, aim, strict=True)), list(encoder.parameters())
    )
    for name, ours, theirs in zip(names, actual, expected, strict=True):
        torch.testing.assert_close(ours.to_dense(), theirs, atol=1e-3, rtol=1e-3, msg=name)


def test_tables_get_sparse_gradients_with_each_row_once(encoder):
    encoder(encoder.tokenise(["red red shoe", "shoe"])).sum().backward()
    assert [parameter.grad.is_sparse for parameter in encoder.sparse_parameters()] == [True, True]
    rows = encoder.table.grad._indices()[0]
    assert len(rows) == 2 and rows[0] < rows[1]


def test_starts_as_a_bag_of_tokens():
    encoder = InceptionEncoder("minilm")
    tokens = encoder.tokenise(["sort a list", "order the sequence", "bake bread"])
    vectors = encoder.encode(tokens, normalise=True)
    assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2]
    sums = encoder.table[torch.from_numpy(tokens[2].astype(np.int64))].sum(0)
    assert torch.cosine_similarity(vectors[2], sums, dim=0) > 0.9


def test_weights_start_from_idf():
    encoder = InceptionEncoder(None, **SMALL | {"words": 4096})
    encoder.fit(encoder.tokenise(["red shoe", "red hat", "red"]))
    red, hat, never = (encoder.weights[int(encoder.tokenise([word]).ids[0]), 0].item() for word in ("red", "hat", "no"))
    assert red < hat < never == 1


def test_texts_are_cut_to_max_length():
    encoder = InceptionEncoder(None, **SMALL, max_length=2)
    long, short, one = (encoder.tokenise([text]) for text in ("red shoe hat", "red shoe", "red"))
    assert torch.equal(encoder.encode(long, max_length=9), encoder.encode(short, max_length=9))
    assert torch.equal(encoder.encode(long, max_length=1), encoder.encode(one, max_length=9))


def test_texts_without_tokens(encoder):
    vector = encoder.encode(encoder.tokenise([""]))[0]
    torch.testing.assert_close(vector, encoder.layer.detach() @ torch.relu(encoder.bias.detach()))


def test_seed_decides_the_start():
    first, same, other = (InceptionEncoder(None, **SMALL, seed=seed).kernels[0] for seed in (1, 1, 2))
    assert torch.equal(first, same)
    assert not torch.equal(first, other)


def test_auto_source_is_resolved(monkeypatch):
    monkeypatch.setattr("megalabel.encoders.inception.has_minilm", lambda: False)
    assert InceptionEncoder(**SMALL).config()["source"] is None


def test_saved_encoder_is_a_start_for_the_same_settings(tmp_path):
    InceptionEncoder(None, **SMALL, seed=4).save(tmp_path)
    again = InceptionEncoder(str(tmp_path), **SMALL)
    assert torch.equal(again.layer, load_encoder(tmp_path).layer)
    with pytest.raises(DataError, match="was expected"):
        InceptionEncoder(str(tmp_path), **SMALL | {"bins": 3})


def plain_maxima(channels, gate, kernels, bins):
    """Convolve with torch, then take the maximum of each stretch."""
    parts = []
    for kernel in kernels:
        maxima = conv1d((channels * gate.unsqueeze(2)).transpose(1, 2), kernel, stride=kernel.shape[2] // 2)
        each = -(-maxima.shape[2] // bins)
        parts.append(torch.stack([maxima[:, :, each * b : each * (b + 1)].amax(2) for b in range(bins)], 1).flatten(1))
    return torch.cat(parts, dim=1)


@pytest.mark.parametrize(("n", "dim", "bins"), [(3, 32, 3), (70, 37, 1), (1, 16, 1), (130, 48, 3)])
def test_maxima_and_gradients_are_those_of_the_plain_form(n, dim, bins):
    generator = torch.Generator().manual_seed(n)

    def random(*shape):
        return torch.randn(shape, generator=generator, dtype=torch.float64, requires_grad=True)

    inputs = [random(n, dim, 3), random(n, dim), random(2, 3, 4), random(5, 3, 8), random(2, 3, 16)]
    channels, gate, *kernels = inputs
    maxima, expected = window_maxima(channels, gate, kernels, bins), plain_maxima(channels, gate, kernels, bins)
    torch.testing.assert_close(maxima, expected)
    sent = torch.randn(maxima.shape, generator=generator, dtype=torch.float64)
    for ours, theirs in zip(
        torch.autograd.grad(maxima, inputs, sent), torch.autograd.grad(expected, inputs, sent), strict=True
    ):
        torch.testing.assert_close(ours, theirs)


def test_an_empty_bin_gives_minus_infinity_and_no_gradient():
    channels = torch.ones(2, 16, 1, requires_grad=True)
    maxima = window_maxima(channels, torch.ones(2, 16), [torch.ones(1, 1, 16)], 3)  # one window, three stretches
    assert maxima.tolist() == [[16.0, -torch.inf, -torch.inf]] * 2
    torch.relu(maxima).sum().backward()
    assert torch.equal(channels.grad, torch.ones(2, 16, 1))


def test_maxima_of_no_texts():
    assert window_maxima(torch.ones(0, 16, 2), torch.ones(0, 16), [torch.ones(3, 2, 4)], 2).shape == (0, 6)
