"""Sparse matrices made block by block are those that scipy makes at once."""

import gc

import numpy as np
import pytest
from scipy import sparse

from megalabel.data import matrices
from megalabel.data.cache import cache_entries
from megalabel.data.matrices import MatrixWriter, count_columns, map_blocks, row_blocks, stack_rows, take_rows


@pytest.fixture(params=["0", "64"])
def mapped(request, tmp_path, monkeypatch):
    """Whether matrices are mapped; blocks have few cells."""
    monkeypatch.setenv("MEGALABEL_CACHE", str(tmp_path))
    monkeypatch.setenv("MEGALABEL_MAP_ABOVE", request.param)
    monkeypatch.setattr(matrices, "_CELLS", 20)
    yield request.param == "0"
    gc.collect()


@pytest.fixture
def matrix():
    return sparse.random(90, 30, 0.1, format="csr", dtype=np.float32, random_state=1)


def same(one, other):
    assert one.shape == other.shape and one.dtype == other.dtype
    for part in ("indptr", "indices", "data"):
        assert np.array_equal(getattr(one, part), getattr(other, part))
        assert getattr(one, part).dtype == getattr(other, part).dtype


def test_rows(matrix, mapped):
    rows = np.random.default_rng(0).integers(90, size=200)
    taken = take_rows(matrix, rows)
    same(taken, matrix[rows])
    assert taken.data.flags.writeable != mapped
    assert bool(cache_entries()["mapped"]) == mapped
    same(take_rows(taken, np.arange(5)), matrix[rows[:5]])
    same(take_rows(matrix, np.empty(0, dtype=np.int64)), matrix[:0])


def test_blocks_cover_all_rows(matrix, mapped):
    blocks = list(row_blocks(matrix))
    assert [row for block in blocks for row in range(block.start, block.stop)] == list(range(90)) and len(blocks) > 9
    wide = sparse.csr_matrix(np.ones((3, 50), dtype=np.float32))
    assert list(row_blocks(wide)) == [slice(0, 1), slice(1, 2), slice(2, 3)]
    assert list(row_blocks(sparse.csr_matrix((0, 5)))) == []


def test_stacks_and_changes(matrix, mapped):
    same(stack_rows([matrix, matrix[:3]], 30, np.float32), sparse.vstack([matrix, matrix[:3]], format="csr"))
    same(map_blocks(lambda block, rows: block * 2, matrix), matrix * 2)
    part = matrix[5:50]
    assert np.array_equal(count_columns(part), np.bincount(part.indices, minlength=30))


def test_work_on_mapped_matrices(matrix, mapped):
    """What the rest of the program does with targets works on files as well."""
    own = take_rows(matrix, np.arange(90))
    same(own.T.tocsr(), matrix.T.tocsr())
    same((own @ own.T).tocsr(), (matrix @ matrix.T).tocsr())
    same(own - own.multiply(own > 0.5), matrix - matrix.multiply(matrix > 0.5))
    same(own[:, [3, 1]], matrix[:, [3, 1]])
    own.sort_indices()
    assert own.nnz == matrix.nnz


def test_an_empty_matrix(mapped):
    assert MatrixWriter(4, np.float32).finish().shape == (0, 4)
