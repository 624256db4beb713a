import time

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from megalabel.errors import DataError
from megalabel.losses import glas


def dense(vectors, similarity):
    return (vectors @ vectors.T - torch.from_numpy(similarity.toarray()).to(vectors)).square().mean()


def graph(size, density, seed):
    found = sparse.random(size, size, density, format="csr", random_state=seed)
    return sparse.csr_matrix((found + found.T) / 2 + sparse.identity(size))


@settings(max_examples=50)
@given(size=st.integers(1, 30), dim=st.integers(1, 8), density=st.floats(0, 1), seed=st.integers(0, 999))
def test_equals_the_dense_formula_with_gradients(size, dim, density, seed):
    similarity = graph(size, density, seed)
    generator = torch.Generator().manual_seed(seed)
    first = torch.randn(size, dim, dtype=torch.float64, generator=generator).requires_grad_()
    second = first.detach().clone().requires_grad_()
    value, expected = glas(first, similarity), dense(second, similarity)
    torch.testing.assert_close(value, expected)
    value.backward()
    expected.backward()
    torch.testing.assert_close(first.grad, second.grad)


def test_gradcheck_also_where_the_graph_is_not_symmetric():
    similarity = sparse.random(6, 6, 0.5, format="csr", random_state=1)
    vectors = torch.randn(6, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda w: glas(w, similarity), (vectors,))


def test_zero_where_the_products_are_the_similarities():
    vectors = torch.randn(9, 4, dtype=torch.float64)
    similarity = sparse.csr_matrix((vectors @ vectors.T).numpy())
    assert abs(glas(vectors, similarity).item()) < 1e-12


def test_empty_graph_and_wrong_size():
    assert glas(torch.eye(2), sparse.csr_matrix((2, 2))).item() == 0.5
    with pytest.raises(DataError, match="3 label vectors"):
        glas(torch.eye(3), sparse.csr_matrix((2, 2)))


def test_many_labels_without_their_matrix():
    size, dim = 30_000, 32  # 30,000 x 30,000 floats would take 3.6 GB
    rows, columns = np.random.default_rng(0).integers(0, size, (2, 300_000))
    similarity = sparse.csr_matrix((np.full(300_000, 0.5), (rows, columns)), shape=(size, size))
    vectors = torch.randn(size, dim, requires_grad=True)
    start = time.perf_counter()
    glas(vectors, similarity).backward()
    assert time.perf_counter() - start < 5
    assert torch.isfinite(vectors.grad).all()
