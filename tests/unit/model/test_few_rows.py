"""Products with a few rows are those of the plain matrices."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from megalabel.model.few_rows import FewRows
from scipy import sparse


@given(st.integers(0, 4), st.integers(0, 4), st.integers(1, 30), st.integers(0, 99))
def test_equals_the_plain_product(rows, queries, columns, seed):
    rng = np.random.default_rng(seed)
    x, y = (
        sparse.csr_matrix(sparse.random(n, columns, 0.2, dtype=np.float32, rng=rng), dtype=np.float32)
        for n in (rows, queries)
    )
    products = FewRows(x).products(y)
    assert products.shape == (queries, rows)
    np.testing.assert_allclose(products, (y @ x.T).toarray(), rtol=1e-5)
