"""Rows scaled to length 1 in little memory are those of torch, and so is their gradient."""

import torch
from megalabel.heads._unit_rows import unit_rows
from torch.nn.functional import normalize

from megalabel.heads import Head, head
from megalabel.heads import _unit_rows as module


def test_value_and_gradient_are_those_of_torch(monkeypatch):
    monkeypatch.setattr(module, "_BLOCK", 7)
    torch.manual_seed(0)
    start, weight = torch.randn(50, 6, dtype=torch.float64), torch.randn(50, 6, dtype=torch.float64)
    start[3] = 0
    found = []
    for function in (unit_rows, lambda rows: normalize(rows, dim=1)):
        rows = start.clone().requires_grad_()
        value = function(rows)
        (value * weight).sum().backward()
        found.append((value.detach(), rows.grad))
    assert torch.equal(found[0][0], found[1][0])
    torch.testing.assert_close(found[0][1], found[1][1], rtol=1e-12, atol=1e-12)


def test_heads_use_it_for_many_labels(monkeypatch):
    monkeypatch.setattr(head, "_MANY", 4)
    for labels in (4, 5):
        made = Head(labels=labels, encoder_dim=3, tower="free")
        vectors, _ = made.labels(None, None)
        assert ("UnitRows" in vectors.grad_fn.name()) == (labels == 5)
        torch.testing.assert_close(vectors.norm(dim=1), torch.ones(labels))
