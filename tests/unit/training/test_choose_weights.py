"""The grid over head weights: candidates must not change what a full search would choose."""

import numpy as np
import pytest
import torch

import megalabel as ml
from megalabel.data.hold_out import hold_out
from megalabel.network.vectors import LabelSide
from megalabel.training import choose_weights as module
from megalabel.training.choose_weights import choose_weights, rank


@pytest.fixture(scope="module")
def data():
    return hold_out(ml.load("synthetic:points=600,labels=150,seed=3"), share=0.2, seed=0)


@pytest.mark.parametrize("bias", [False, True])
def test_candidates_give_the_weights_of_full_searches(data, bias):
    torch.manual_seed(0)
    truth = torch.from_numpy(data.val.targets.toarray()).float()
    labels = torch.eye(len(data.labels))
    queries = {"good": truth + 0.4 * torch.randn(truth.shape), "poor": truth + 1.5 * torch.randn(truth.shape)}
    sides = {name: LabelSide(labels, torch.randn(len(labels)) * 0.1 if bias else None) for name in queries}
    actual = choose_weights(data, queries, sides, "nDCG@5")
    shares = np.linspace(0, 1, module.STEPS + 1)
    values = [
        rank(data, "val", queries, sides, {"good": float(share), "poor": float(1 - share)}).metrics["nDCG@5"]
        for share in shares
    ]
    assert sum(actual.values()) == pytest.approx(1.0)
    assert rank(data, "val", queries, sides, actual).metrics["nDCG@5"] == pytest.approx(max(values))
    assert actual["good"] > 0.5


def test_equal_weights_win_a_tie(data):
    same = torch.from_numpy(data.val.targets.toarray()).float()
    side = LabelSide(torch.eye(len(data.labels)), None)
    assert choose_weights(data, {"a": same, "b": same}, {"a": side, "b": side}, "P@1") == {"a": 0.5, "b": 0.5}
