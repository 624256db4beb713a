"""The precision encoders compute in."""

import pytest
import torch

from megalabel.encoders import BagEncoder
from megalabel.network import Network
from megalabel.recipes import load_recipe
from megalabel.recipes.build import build_network


@pytest.mark.parametrize(
    ("precision", "kind", "device", "capability", "expected"),
    [
        ("auto", "transformer", "cuda", (8, 6), torch.bfloat16),
        ("auto", "transformer", "cuda", (7, 5), None),
        ("auto", "transformer", "cpu", None, None),
        ("auto", "bag", "cuda", (8, 6), None),
        ("float32", "transformer", "cuda", (8, 6), None),
        ("bfloat16", "transformer", "cuda", (7, 5), torch.bfloat16),
        ("bfloat16", "bag", "cpu", None, torch.bfloat16),
    ],
)
def test_precision_of_the_encoder(monkeypatch, precision, kind, device, capability, expected):
    asked = []
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(torch, "autocast", lambda device, dtype: asked.append((device, dtype)))
    recipe = load_recipe("inceptionxml-cpu", [f"training.precision={precision}"])
    encoder = BagEncoder(None, dim=8, words=64, bigrams=0, characters=0)
    monkeypatch.setattr(encoder, "kind", kind, raising=False)
    network = build_network(recipe, encoder, 6)
    monkeypatch.setattr(Network, "device", torch.device(device))
    network.autocast("encoder")
    assert asked == ([] if expected is None else [(device, expected)])
