"""Layers between an encoder and a head, against plain torch."""

import torch
from torch.nn.functional import layer_norm, linear, normalize

from megalabel.heads import projections
from megalabel.heads.projections import make_projection, unit_rows


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
