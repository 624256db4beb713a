"""An encoder takes the weights of a trained one as far as they mean the same."""

import pytest
import torch

from megalabel.encoders import BagEncoder, InceptionEncoder

SIZES = {"dim": 16, "words": 64, "bigrams": 32, "characters": 64}


@pytest.mark.parametrize("other", [{"seed": 1}, {"seed": 1, "thin": 0.5, "dropout": 0.1}])
def test_equal_bags(other):
    old, new = BagEncoder(None, **SIZES), BagEncoder(None, **SIZES, **other)
    assert new.take_over(old)
    tokens = new.tokenise(["a red shoe", "blue"])
    assert torch.equal(new.encode(tokens), old.encode(tokens))


def test_kinds_of_features_of_another_size_begin_afresh():
    old, new = BagEncoder(None, **SIZES), BagEncoder(None, **{**SIZES, "bigrams": 0, "characters": 128}, seed=1)
    before = new.table[64:].clone()
    assert new.take_over(old)
    assert torch.equal(new.table[:64], old.table[:64]) and torch.equal(new.table[64:], before)
    assert torch.equal(new.layer, old.layer)


@pytest.mark.parametrize("change", [{"dim": 8}, {"residual": False}, {"ngrams": [3]}, {"split": "spaces"}])
def test_bags_that_read_otherwise(change):
    new = BagEncoder(None, **{**SIZES, **change})
    before = new.table.clone()
    assert not new.take_over(BagEncoder(None, **SIZES)) and torch.equal(new.table, before)


def test_other_encoders_take_all_or_nothing():
    old, new = (InceptionEncoder(None, dim=16, words=64, seed=seed) for seed in (0, 1))
    assert new.take_over(old)
    assert all(torch.equal(value, old.state_dict()[name]) for name, value in new.state_dict().items())
    assert not InceptionEncoder(None, dim=32, words=64).take_over(old)
    assert not new.take_over(BagEncoder(None, **SIZES)) and not BagEncoder(None, **SIZES).take_over(new)
