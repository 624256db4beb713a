"""Excluded pairs, block by block and row by row."""

import numpy as np
import torch
from scipy import sparse

from megalabel.index._cells import Cells


def test_cells_of_a_block_and_of_some_rows():
    matrix = sparse.csr_matrix(np.array([[0, 1, 0, 2], [3, 0, 0, 0], [0, 1, 1, 0]], dtype=np.float32))
    matrix.data[1] = 0  # stored, but zero
    cells = Cells.of(matrix, torch.device("cpu"))
    rows, columns = cells.between(1, 3)
    assert sorted(zip(rows.tolist(), columns.tolist(), strict=True)) == [(0, 1), (2, 1), (2, 2)]
    some = cells.take(np.array([0, 2]))
    assert sorted(zip(some.rows.tolist(), some.columns.tolist(), strict=True)) == [(0, 1), (1, 1), (1, 2)]
    assert len(cells.take(np.array([1])).between(1, 4)[0]) == 0
