"""Products with a few sparse rows, in time independent of the number of columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["FewRows"]


class FewRows:
    """Sparse rows [c, F], stored over the columns they use, which are few even if F is millions.

    >>> rows = FewRows(sparse.csr_matrix(np.array([[0, 2, 0, 1]], dtype=np.float32)))
    >>> rows.products(sparse.csr_matrix(np.array([[5, 1, 5, 3], [1, 0, 0, 0]], dtype=np.float32))).tolist()
    [[5.0], [0.0]]
    """

    def __init__(self, rows: sparse.csr_matrix) -> None:
        self.columns, columns = np.unique(rows.indices, return_inverse=True)
        self.rows = sparse.csr_matrix((rows.data, columns, rows.indptr), shape=(rows.shape[0], len(self.columns)))

    def products(self, queries: sparse.csr_matrix) -> NDArray[np.float32]:
        """Return the products [Q, c] with queries [Q, F]."""
        if not len(self.columns):
            return np.zeros((queries.shape[0], self.rows.shape[0]), dtype=np.float32)
        columns = np.minimum(np.searchsorted(self.columns, queries.indices), len(self.columns) - 1)
        shared = self.columns[columns] == queries.indices
        indptr = np.concatenate([[0], np.cumsum(shared)])[queries.indptr]
        shape = (queries.shape[0], len(self.columns))
        reduced = sparse.csr_matrix((queries.data[shared], columns[shared], indptr), shape=shape)
        products: NDArray[np.float32] = (reduced @ self.rows.T).toarray().astype(np.float32, copy=False)
        return products
