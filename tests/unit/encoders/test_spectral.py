"""Division by the spectral norm."""

import pytest
import torch

from megalabel.encoders.spectral import over_spectral_norm


@pytest.mark.parametrize("shape", [(5, 5), (3, 7), (7, 3)])
def test_value_and_gradient_are_those_of_a_singular_value_decomposition(shape):
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(shape, generator=generator, dtype=torch.float64, requires_grad=True)
    sent = torch.randn(shape, generator=generator, dtype=torch.float64)
    actual = over_spectral_norm(weight)
    expected = weight / torch.linalg.matrix_norm(weight, ord=2)
    torch.testing.assert_close(actual, expected)
    (ours,) = torch.autograd.grad(actual, weight, sent)
    (theirs,) = torch.autograd.grad(expected, weight, sent)
    torch.testing.assert_close(ours, theirs)


def test_identity_and_zeros():
    assert torch.equal(over_spectral_norm(torch.eye(4)), torch.eye(4))
    assert over_spectral_norm(torch.zeros(3, 3)).isfinite().all()
