"""Code shared by all searches."""

import numpy as np
import torch

from megalabel.index import _search
from megalabel.index._search import best_first, exact_scores, largest_norm


def test_a_score_does_not_depend_on_what_is_scored_beside_it(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    labels, queries = torch.randn(300, 97, generator=generator), torch.randn(20, 97, generator=generator)
    ids = torch.randint(300, (20, 31), generator=generator)
    whole = exact_scores(labels, queries, ids)
    monkeypatch.setattr(_search, "_GATHER", 1)
    assert torch.equal(exact_scores(labels, queries, ids), whole)
    assert torch.equal(exact_scores(labels, queries[3:4], ids[3:4, 5:6]), whole[3:4, 5:6])
    wide = torch.nn.functional.pad(labels, (0, 3))[:, :97]  # rows apart in memory
    assert torch.equal(exact_scores(wide, queries, ids), whole)
    want = np.einsum("qd,qnd->qn", queries.double().numpy(), labels[ids].double().numpy())
    np.testing.assert_allclose(whole.numpy(), want, rtol=1e-6, atol=1e-5)


def test_best_first_breaks_ties_by_id():
    scores, ids = best_first(torch.tensor([[1.0, 2.0, 1.0, 0.0]]), torch.tensor([[9, 4, 3, 1]]), 3)
    assert ids.tolist() == [[4, 3, 9]]
    assert scores.tolist() == [[2.0, 1.0, 1.0]]


def test_largest_norm():
    assert largest_norm(torch.empty(0, 3)) == 0
    assert largest_norm(torch.tensor([[3.0, 4.0], [0.0, 1.0]])) == 5
    assert largest_norm(torch.full((70_000, 1), 2.0)) == 2
    assert torch.isnan(largest_norm(torch.tensor([[torch.nan], [1.0]])))
