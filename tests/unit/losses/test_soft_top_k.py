"""The threshold of SoftTopK: sums to k whatever the scores, in few passes."""

import pytest
import torch

from megalabel.losses import SoftTopK
from megalabel.losses.base import split
from megalabel.losses.soft_top_k import solve


def scores(kind, rows, cols):
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(rows, cols, generator=generator)
    if kind == "outliers":
        noise[:, :3] += 12
    if kind == "gap":
        noise = torch.full((rows, cols), -1e4)
        noise[:, :5] = 1e4
    return {"concentrated": 18 + noise * 0.01, "wide": noise * 50, "huge": noise * 1e4}.get(kind, noise)


@pytest.mark.parametrize("kind", ["normal", "concentrated", "outliers", "wide", "huge", "gap"])
@pytest.mark.parametrize("k", [1, 5, 100])
def test_sums_to_k(kind, k):
    members = SoftTopK(k).memberships(scores(kind, 8, 3956))
    assert ((members >= 0) & (members <= 1)).all()
    assert (members.double().sum(1) - k).abs().max() <= 3e-6 * max(k, 30)


def test_sums_to_k_over_a_million_concentrated_scores():
    for cols in (131_073, 1_305_265):
        members = SoftTopK(5).memberships(scores("concentrated", 1, cols))
        assert abs(members.double().sum().item() - 5) < 1e-4


@pytest.mark.parametrize("kind", ["normal", "concentrated", "outliers"])
def test_few_passes(kind):
    negatives, positives = split(scores(kind, 8, 50_000), torch.zeros(8, 50_000))
    assert solve(negatives, positives, torch.full((8,), 5.0), 2.0)._passes <= 3


def test_masked_cells_are_not_in_the_sum():
    s = scores("normal", 4, 60)
    mask = torch.rand(4, 60, generator=torch.Generator().manual_seed(1)) < 0.5
    members = SoftTopK(3).memberships(s, mask=mask)
    assert (members[~mask] == 0).all()
    torch.testing.assert_close(members.sum(1), torch.full((4,), 3.0))


def test_k_from_the_positives_of_each_row():
    s, targets = scores("normal", 3, 20), torch.zeros(3, 20)
    targets[0, :2] = targets[1, :7] = 1
    members = SoftTopK("positives").memberships(s, targets)
    torch.testing.assert_close(members.sum(1)[:2], torch.tensor([2.0, 7.0]))


@pytest.mark.parametrize("k", [3, 4, 100])
def test_k_at_or_above_the_number_of_cells_takes_all(k):
    s = torch.tensor([[3.0, -2.0, 0.5]], requires_grad=True)
    value = SoftTopK(k)(s, torch.tensor([[1.0, 0, 0]]))
    value.backward()
    assert value.item() == 0
    assert (s.grad == 0).all()
    assert (SoftTopK(k).memberships(s) == 1).all()


def test_large_alpha_is_a_hard_top_k():
    s = scores("normal", 5, 40).double()
    members = SoftTopK(3, alpha=1e4).memberships(s)
    hard = torch.zeros_like(s).scatter_(1, s.topk(3, 1).indices, 1.0)
    torch.testing.assert_close(members, hard, rtol=0, atol=1e-3)


def test_more_positives_than_k_compete():
    s = torch.tensor([[2.0, 0.5, -1.0, 1.0, 0.0]], requires_grad=True)
    SoftTopK(2)(s, torch.tensor([[1.0, 1, 0, 0, 1]])).backward()
    assert s.grad[0, 0] > 0
