"""Convolutions along the embedding dimension and their maxima: the same as torch's own, with the same gradients."""

import pytest
import torch
from torch.nn.functional import conv1d

from megalabel.encoders._windows import window_maxima


def plain(channels, gate, kernels, bins):
    """Convolve with torch, then take the maximum of each stretch."""
    parts = []
    for kernel in kernels:
        found = conv1d((channels * gate.unsqueeze(2)).transpose(1, 2), kernel, stride=kernel.shape[2] // 2)
        each = -(-found.shape[2] // bins)
        parts.append(torch.stack([found[:, :, each * b : each * (b + 1)].amax(2) for b in range(bins)], 1).flatten(1))
    return torch.cat(parts, dim=1)


@pytest.mark.parametrize(("n", "dim", "bins"), [(3, 32, 3), (70, 37, 1), (1, 16, 1), (130, 48, 3)])
def test_value_and_gradients_are_those_of_the_plain_form(n, dim, bins):
    generator = torch.Generator().manual_seed(n)

    def random(*shape):
        return torch.randn(shape, generator=generator, dtype=torch.float64, requires_grad=True)

    inputs = [random(n, dim, 3), random(n, dim), random(2, 3, 4), random(5, 3, 8), random(2, 3, 16)]
    channels, gate, *kernels = inputs
    found, expected = window_maxima(channels, gate, kernels, bins), plain(channels, gate, kernels, bins)
    torch.testing.assert_close(found, expected)
    sent = torch.randn(found.shape, generator=generator, dtype=torch.float64)
    for ours, theirs in zip(
        torch.autograd.grad(found, inputs, sent), torch.autograd.grad(expected, inputs, sent), strict=True
    ):
        torch.testing.assert_close(ours, theirs)


def test_a_stretch_without_a_window_gives_minus_infinity_and_no_gradient():
    channels = torch.ones(2, 16, 1, requires_grad=True)
    found = window_maxima(channels, torch.ones(2, 16), [torch.ones(1, 1, 16)], 3)  # one window, three stretches
    assert found.tolist() == [[16.0, -torch.inf, -torch.inf]] * 2
    torch.relu(found).sum().backward()
    assert torch.equal(channels.grad, torch.ones(2, 16, 1))


def test_no_texts():
    assert window_maxima(torch.ones(0, 16, 2), torch.ones(0, 16), [torch.ones(3, 2, 4)], 2).shape == (0, 6)
