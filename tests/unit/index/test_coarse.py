"""Search over bytes against the plain search: the same bit for bit."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from megalabel.index import ExactIndex, exact
from megalabel.index._coarse import Coarse
from megalabel.index._kernels import product


def best(labels, query, k, gone):
    scores = np.array([product(label, query) for label in labels], dtype=np.float32)
    scores[gone] = -np.inf
    order = np.lexsort((np.arange(len(scores)), -scores))[:k]
    ids = np.full(k, -1)
    ids[: len(order)] = np.where(scores[order] > -np.inf, order, -1)
    return ids, scores[order]


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 60), st.integers(1, 20), st.integers(1, 60), st.sampled_from(["plain", "ties", "sizes", "zeros"]),
    st.integers(0, 10_000),
)  # fmt: skip
def test_equals_a_full_sort(count, dim, k, kind, seed):
    rng = np.random.default_rng(seed)
    labels, queries = (rng.standard_normal((n, dim)).astype(np.float32) for n in (count, 3))
    if kind == "ties":
        labels, queries = labels.round(), queries.round()
    if kind == "sizes":
        labels *= (10.0 ** rng.uniform(-12, 12, (count, 1))).astype(np.float32)
    if kind == "zeros":
        labels[rng.random(count) < 0.5] = 0
        queries[0] = 0
    gone = [np.flatnonzero(rng.random(count) < share) for share in (0.0, 0.3, 1.0)]
    k = min(k, count)
    scores, ids = Coarse(labels, float(np.linalg.norm(labels, axis=1).max())).search(queries, k, gone)
    for row in range(3):
        want_ids, want = best(labels, queries[row], k, gone[row])
        assert ids[row].tolist() == want_ids.tolist()
        assert scores[row].tolist() == want.tolist()


def test_a_search_of_a_few_queries_equals_that_of_many(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    labels = torch.randn(3_000, 48, generator=generator)
    labels[1_000:1_300] = labels[0]  # 301 labels with one vector
    labels[7] = 0
    queries = torch.cat([torch.randn(5, 48, generator=generator), labels[:3]])
    exclude = sparse.random(8, 3_000, density=0.3, format="csr", rng=np.random.default_rng(0))
    first = ExactIndex(labels).remove([3, 5, 2_500])
    for index, out in ((first, exclude), (first.add(labels[:40]), None)):
        for k in (1, 100, 3_100):
            few = index.search(queries, k, out)
            monkeypatch.setattr(exact, "FEW", 0)
            many = index.search(queries, k, out)
            monkeypatch.undo()
            np.testing.assert_array_equal(few.ids, many.ids)
            np.testing.assert_array_equal(few.scores, many.scores)


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_very_small_and_very_large_vectors(scale):
    rng = np.random.default_rng(0)
    labels = (scale * rng.standard_normal((40, 6))).astype(np.float32)
    query = rng.standard_normal(6).astype(np.float32)
    longest = float(np.linalg.norm(labels.astype(np.float64), axis=1).max())
    _, ids = Coarse(labels, longest).search(query[None], 5, [np.empty(0, dtype=np.int64)])
    assert ids[0].tolist() == best(labels, query, 5, [])[0].tolist()
