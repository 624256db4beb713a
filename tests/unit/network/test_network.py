"""The precision of encoders, and the layers that heads read."""

import numpy as np
import pytest
import torch

from megalabel.encoders import BagEncoder
from megalabel.errors import SettingError
from megalabel.heads import FreeSettings, TextSettings
from megalabel.network import Network
from megalabel.network.gradcache import GradientCache
from megalabel.recipes import load_recipe
from megalabel.recipes.build import build_network
from megalabel.types import Tokens


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


class Layered(torch.nn.Module):
    """Layer l of a text is its number of tokens to the power of l, times a weight."""

    dim, depth = 1, 3

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(()))

    def forward(self, tokens, max_length=None, layers=None):
        sizes = torch.from_numpy(np.diff(tokens.offsets)).float()
        return self.weight * torch.stack([sizes**layer for layer in layers], dim=1).unsqueeze(2)


@pytest.mark.parametrize("chunk", [2, 9])
def test_layers_that_heads_read_are_trained(chunk):
    heads = {"low": FreeSettings(layer=1, loss="bce"), "high": FreeSettings(loss="bce")}
    network = Network(heads, {"encoder": Layered()}, 6)
    tokens = Tokens(np.arange(6, dtype=np.int32), np.array([0, 1, 3, 6]))
    vectors, _ = network.encode_with_gradient(GradientCache(chunk), "encoder", tokens, None)
    assert network.tapped(vectors, "encoder", "low").tolist() == [[1.0], [2.0], [3.0]]
    assert network.tapped(vectors, "encoder", "high").tolist() == [[1.0], [8.0], [27.0]]
    vectors.sum().backward()
    assert network.encoder.weight.grad.item() == 42


def test_two_encoders_of_a_head_have_vectors_of_one_size():
    bags = {
        name: BagEncoder(None, dim=dim, words=64, bigrams=0, characters=0) for name, dim in (("text", 8), ("label", 6))
    }
    with pytest.raises(SettingError, match="the vectors of text have 8 numbers, those of label 6"):
        Network({"dual": TextSettings(label_encoder="label", loss="bce")}, bags, 6)
