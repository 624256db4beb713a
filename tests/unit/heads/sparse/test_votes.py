"""Votes of neighbours against a product of sparse matrices."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from megalabel.heads.sparse.votes import count_votes


@settings(deadline=None)
@given(st.integers(1, 20), st.integers(1, 300), st.integers(1, 8), st.integers(0, 9_999))
def test_equals_a_product(rows, labels, neighbours, seed):
    rng = np.random.default_rng(seed)
    targets = sparse.random(rows, labels, density=0.4, format="csr", dtype=np.float32, rng=rng)
    targets.sort_indices()
    ids = np.stack([rng.permutation(max(rows, neighbours))[:neighbours] for _ in range(3)])
    ids = np.where(ids < rows, ids, -1)
    weights = rng.random(ids.shape, dtype=np.float32)
    parts = targets.indptr, targets.indices, targets.data
    indptr, found, sums = count_votes(ids, weights, parts, labels)
    votes = np.zeros((3, rows), dtype=np.float32)
    for row, (near, each) in enumerate(zip(ids, weights, strict=True)):
        votes[row, near[near >= 0]] = each[near >= 0]
    actual = sparse.csr_matrix((sums, found, indptr), shape=(3, labels))
    assert actual.has_canonical_format
    np.testing.assert_allclose(actual.toarray(), votes @ targets.toarray(), rtol=1e-5, atol=1e-6)
