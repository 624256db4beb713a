"""Planned costs equal those of the real encoders."""

import json

import pytest

from megalabel.encoders import BagEncoder, build_encoder
from megalabel.encoders.cost import TransformerCost, find_tokenizer
from megalabel.encoders.settings import ENCODERS, BagOptions, BagSettings, TransformerSettings
from megalabel.encoders.text_size import TextSize
from megalabel.errors import SettingError


def weights(encoder):
    sparse = getattr(encoder, "sparse_parameters", list)()
    table = sum(part.numel() for part in sparse)
    dense = sum(part.numel() for part in encoder.parameters() if part.requires_grad) - table
    return dense, table


@pytest.mark.parametrize(
    ("kind", "source", "options"),
    [
        ("bag", None, {"dim": 12, "words": 64, "bigrams": 32, "characters": 128}),
        ("bag", None, {"dim": 12, "words": 64, "bigrams": 0, "characters": 0, "residual": False}),
        ("bag", "minilm", {"dim": 8}),
        ("inception", None, {"dim": 32, "words": 64, "channels": 4, "filters": 3, "bins": 2, "attention": 5}),
        ("inception", "minilm", {"dim": 16, "max_length": 9}),
        ("inceptionxml", None, {"token_dim": 70, "words": 64, "filters": 3, "max_length": 9}),
        ("inceptionxml", "minilm", {}),
        ("transformer", "minilm", {}),
        ("transformer", "minilm", {"projection": 7, "layers": 2}),
    ],
)
def test_weights_are_those_of_the_encoder(kind, source, options):
    real = build_encoder({"kind": kind, "source": source, **options})
    size = ENCODERS[kind].model_validate({"source": source, "options": options}).cost()
    rows, width = size.table
    assert (size.dense, rows * width) == weights(real)
    assert size.dim == real.dim


def test_published_sizes_of_known_models():
    assert TransformerSettings(source="distilbert-base-uncased").cost().dense == 66_362_880
    base = TransformerSettings(source="bert-base-uncased").cost()
    assert base.dense == 109_482_240 - 768 * 768 - 768  # without its pooler
    shape = TransformerSettings(source="sentence-transformers/all-MiniLM-L6-v2").cost()
    assert shape.dense == TransformerSettings(source="minilm").cost().dense


def test_the_size_of_a_folder(tmp_path):
    (tmp_path / "config.json").write_text(
        json.dumps(
            {"dim": 8, "n_layers": 2, "n_heads": 2, "hidden_dim": 16, "vocab_size": 50, "max_position_embeddings": 9}
        )
    )
    assert TransformerSettings(source=str(tmp_path)).cost() == TransformerCost(2, 8, 2, 16, 50, 9, 0)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(SettingError, match=r"config\.json"):
        TransformerSettings(source=str(tmp_path)).cost()


def test_an_encoder_of_unknown_size_is_an_error():
    with pytest.raises(SettingError, match=r"'org/unheard-of'.*folder"):
        TransformerSettings(source="org/unheard-of").cost()


def test_tokenizer_of_an_encoder(tmp_path):
    assert len(find_tokenizer(TransformerSettings(source="minilm")).encode("red shoe").ids) >= 2
    assert find_tokenizer(TransformerSettings(source="org/unheard-of")) is None
    (tmp_path / "tokenizer.json").write_text("nonsense")
    assert find_tokenizer(TransformerSettings(source=str(tmp_path))) is None


def test_features_and_growth_of_real_texts():
    texts = ["inverse of a square matrix", "sum of two matrices", "the inverse hyperbolic sine"] * 100
    encoder = BagEncoder(None, dim=4)
    tokens = encoder.tokenise(texts)
    size, bag = TextSize.of(texts), BagSettings(source=None, options=BagOptions(dim=4)).cost()
    assert bag.items(size, None) == pytest.approx(len(tokens.ids) / len(texts), rel=0.1)
    assert bag.touched(size, len(texts)) == pytest.approx(len(set(tokens.ids.tolist())), rel=0.25)
    assert bag.items(size, 5) == 5


@pytest.mark.parametrize("options", [{}, {"dropout": 0.25, "token_dropout": 0.25}])
def test_what_the_published_inception_keeps_for_the_backward_pass(options):
    import torch

    encoder = build_encoder({"kind": "inceptionxml", "source": None, "words": 1024, **options})
    texts = [" ".join(f"w{(31 * i + 7 * j) % 997}" for j in range(1 + i % 34)) for i in range(64)]
    weights = {part.untyped_storage().data_ptr() for part in encoder.parameters()}
    held = {}

    def keep(part):
        held[part.untyped_storage().data_ptr()] = part  # so that no other tensor takes its place
        return part

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda part: part):
        encoder(encoder.tokenise(texts))
    real = sum(part.untyped_storage().nbytes() for place, part in held.items() if place not in weights)
    cost = ENCODERS["inceptionxml"].model_validate({"source": None, "options": options}).cost()
    planned = sum(part.bytes for part in cost.graph(64 * 16, 64, gpu=False, half=False))
    assert planned == pytest.approx(real, rel=0.15)
