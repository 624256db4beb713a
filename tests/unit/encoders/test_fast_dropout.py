"""Dropout on a CPU: the chance, the scale, the same mask for the same random state."""

import pytest
import torch

from megalabel.encoders._fast_dropout import FastDropout, dropout_noise, use_fast_dropout


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_chance_and_scale(p):
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


def test_takes_the_place_of_plain_dropout_only():
    class Other(torch.nn.Dropout):
        pass

    model = torch.nn.Sequential(torch.nn.Dropout(0.3), torch.nn.Sequential(torch.nn.Dropout(0.2)), Other(0.1))
    use_fast_dropout(model)
    assert [type(part) for part in (model[0], model[1][0], model[2])] == [FastDropout, FastDropout, Other]
    assert (model[0].p, model[1][0].p) == (0.3, 0.2)
