"""Layers between an encoder and a head, against plain torch."""

import pytest
import torch
from torch.nn.functional import layer_norm, linear, normalize

from megalabel.heads.dense import projections
from megalabel.heads.dense.projections import SpectralLinear, make_projection, unit_rows


def test_the_layer_of_ance_is_a_small_linear_map_then_layer_norm():
    torch.manual_seed(0)
    layers = make_projection("layer_norm", 300, 200, 0.0)
    weight, bias = layers[0].weight, layers[0].bias
    assert abs(weight.std().item() - 0.02) < 1e-3
    assert not bias.any()
    encoded = torch.randn(4, 300)
    torch.testing.assert_close(layers(encoded), layer_norm(linear(encoded, weight), (200,)))


def test_the_other_layers():
    encoded = torch.randn(4, 6)
    assert torch.equal(make_projection("none", 6, 6, 0.0)(encoded), encoded)
    tanh = make_projection("tanh", 6, 5, 0.0)
    torch.testing.assert_close(tanh(encoded), tanh[0](encoded).tanh())
    residual = make_projection("residual", 6, 6, 0.0)
    torch.testing.assert_close(residual(encoded), encoded + residual.layer(encoded).relu())


def test_unit_rows_have_the_value_and_gradient_of_torch(monkeypatch):
    monkeypatch.setattr(projections, "BLOCK", 7)
    monkeypatch.setattr(projections, "MANY_ROWS", 0)
    torch.manual_seed(0)
    start, weight = torch.randn(50, 6, dtype=torch.float64), torch.randn(50, 6, dtype=torch.float64)
    start[3] = 0
    results = []
    for function in (unit_rows, lambda rows: normalize(rows, dim=1)):
        rows = start.clone().requires_grad_()
        value = function(rows)
        (value * weight).sum().backward()
        results.append((value.detach(), rows.grad))
    assert torch.equal(results[0][0], results[1][0])
    torch.testing.assert_close(results[0][1], results[1][1], rtol=1e-12, atol=1e-12)


def test_the_layer_of_deepxml_starts_at_the_identity():
    layer = make_projection("residual_identity", 5, 5, 0.0)
    encoded = torch.randn(7, 5)
    torch.testing.assert_close(layer(encoded), encoded + encoded.relu())
    with torch.no_grad():
        layer.weight.normal_()
        layer.bias.normal_()
    largest = torch.linalg.matrix_norm(layer.weight, ord=2)
    expected = torch.stack([h + (layer.weight @ h / largest + layer.bias).relu() for h in encoded])
    torch.testing.assert_close(layer(encoded), expected)
    dropped = make_projection("residual_identity", 5, 5, 0.5)(torch.ones(100, 5))
    assert set(dropped.flatten().tolist()) == {1.0, 3.0}


def torch_spectral(weight, bias):
    """Return torch's own spectrally normalised layer, after many rounds of its power iteration."""
    layer = torch.nn.Linear(*weight.shape[::-1])
    with torch.no_grad():
        layer.weight.copy_(weight)
        layer.bias.copy_(bias)
    layer = torch.nn.utils.parametrizations.spectral_norm(layer, n_power_iterations=500)
    layer(torch.zeros(1, weight.shape[1]))  # in training it iterates
    return layer.eval()


@pytest.mark.parametrize("shape", [(6, 6), (15, 3), (3, 15)])
def test_a_spectrally_normalised_layer_is_that_of_torch(shape):
    torch.manual_seed(0)
    layer = SpectralLinear(*shape)
    with torch.no_grad():
        layer.weight.normal_()
        layer.bias.normal_()
    theirs = torch_spectral(layer.weight, layer.bias)
    vectors = torch.randn(4, shape[0])
    torch.testing.assert_close(layer(vectors), theirs(vectors), rtol=1e-4, atol=1e-5)
    layer(vectors).square().sum().backward()
    theirs(vectors).square().sum().backward()
    torch.testing.assert_close(layer.weight.grad, theirs.parametrizations.weight.original.grad, rtol=1e-3, atol=1e-4)


def test_the_layer_of_decaf():
    torch.manual_seed(0)
    query, label = (make_projection("gated_residual", 5, 5, 0.0, labels=labels) for labels in (False, True))
    encoded = torch.randn(7, 5)
    torch.testing.assert_close(label(encoded), (encoded + encoded.relu()) / 2)  # gates of one half, the identity
    with torch.no_grad():
        for parameter in query.parameters():
            parameter.normal_()
    label.load_state_dict(query.state_dict())
    inner = torch_spectral(query.layer.weight, query.layer.bias)
    expected = query.layer_gate.sigmoid() * inner(encoded.relu()) + query.input_gate.sigmoid() * encoded
    torch.testing.assert_close(label(encoded), expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(query(encoded), expected.relu(), rtol=1e-4, atol=1e-5)
    dropped = make_projection("gated_residual", 5, 5, 0.5)(torch.ones(100, 5))
    assert set(dropped.flatten().tolist()) == {0.0, 1.0, 3.0}  # relu(1/2 or 3/2), then dropped or doubled


def test_the_layers_of_eclare_and_inceptionxml_plus():
    torch.manual_seed(0)
    encoded = torch.randn(7, 5)
    eclare = make_projection("relu_residual", 5, 5, 0.0)
    torch.testing.assert_close(eclare(encoded), encoded + encoded.relu())
    with torch.no_grad():
        eclare.layer.weight.normal_()
    plus = make_projection("gelu_residual", 5, 5, 0.0)
    for layer, expected in (
        (eclare, lambda inner: encoded + inner(encoded.relu())),
        (plus, lambda inner: encoded + torch.nn.functional.gelu(inner(encoded))),
    ):
        inner = torch_spectral(layer.layer.weight, layer.layer.bias)
        torch.testing.assert_close(layer(encoded), expected(inner), rtol=1e-4, atol=1e-5)
