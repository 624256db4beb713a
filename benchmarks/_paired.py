"""What is kept of each test row of a run, so that two runs can be compared row by row; docs/_intervals.py reads it."""

from __future__ import annotations

import base64

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix


def packed(values: NDArray[np.integer]) -> str:
    """Return small numbers, one a test row, as text for a file of results: a byte each, in base 64.

    >>> packed(np.array([3, 0, 31]))
    'AwAf'
    """
    return base64.b64encode(np.ascontiguousarray(values, dtype=np.uint8).tobytes()).decode("ascii")


def hits_of(ids: NDArray[np.integer], targets: csr_matrix) -> NDArray[np.uint8]:
    """Return [N] the hits among the best five of each row, one bit for each place, the first place the lowest bit.

    >>> hits_of(np.array([[0, 2, 1]]), csr_matrix([[1, 1, 0]])).tolist()
    [5]
    """
    result = np.zeros(len(ids), dtype=np.uint8)
    for row, best in enumerate(ids[:, :5]):
        wanted = targets.indices[targets.indptr[row] : targets.indptr[row + 1]]
        result[row] = int(np.isin(best, wanted) @ (1 << np.arange(len(best))))
    return result
