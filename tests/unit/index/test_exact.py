"""Exact search against a full sort in float64."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from megalabel.errors import DataError, SettingError
from megalabel.index import ExactIndex, load_index
from megalabel.index.exact import Cells


def brute_force(queries, labels, k, exclude=None):
    scores = (queries.double() @ labels.double().T).float().numpy()
    if exclude is not None:
        scores[exclude.toarray() != 0] = -np.inf
    ids = np.full((len(queries), k), -1)
    for row, line in enumerate(scores):
        order = [i for i in np.lexsort((np.arange(len(line)), -line)) if line[i] > -np.inf][:k]
        ids[row, : len(order)] = order
    return ids


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 40), st.integers(1, 9), st.integers(1, 50), st.sampled_from([1, 3, 7, 64]), st.booleans(),
    st.integers(0, 10_000),
)  # fmt: skip
def test_equals_a_full_sort_for_every_block_size(labels, queries, k, block, small_integers, seed):
    generator = torch.Generator().manual_seed(seed)
    shape = (labels, 4)
    if small_integers:  # many exact ties
        vectors = torch.randint(-1, 2, shape, generator=generator).float()
        asked = torch.randint(-1, 2, (queries, 4), generator=generator).float()
    else:
        vectors, asked = torch.randn(shape, generator=generator), torch.randn(queries, 4, generator=generator)
    exclude = sparse.random(queries, labels, density=0.3, format="csr", rng=np.random.default_rng(seed))
    top = ExactIndex(vectors, block=block, batch_size=2).search(asked, k, exclude)
    np.testing.assert_array_equal(top.ids, brute_force(asked, vectors, k, exclude))
    assert top.ids.shape == top.scores.shape == (queries, k)
    assert ((top.scores == -np.inf) == (top.ids == -1)).all()


def test_scores_and_ids_are_identical_for_every_block_and_batch_size():
    generator = torch.Generator().manual_seed(0)
    labels = torch.randn(5_000, 96, generator=generator)
    labels[1_000:1_300] = labels[0]  # 301 labels with one vector: every such query is crowded
    queries = torch.cat([torch.randn(20, 96, generator=generator), labels[:3]])
    first = ExactIndex(labels, block=5_001).search(queries, 100)
    for block, batch_size in [(1_000, 7), (333, 256), (16, 1), (4_999, 3)]:
        other = ExactIndex(labels, block=block, batch_size=batch_size).search(queries, 100)
        np.testing.assert_array_equal(first.ids, other.ids)
        np.testing.assert_array_equal(first.scores, other.scores)
    assert first.ids[20, :5].tolist() == [0, 1_000, 1_001, 1_002, 1_003]


@pytest.fixture
def plain(monkeypatch):
    """Search by torch alone, as on devices other than a CPU."""
    monkeypatch.setattr(
        ExactIndex, "_compiled", lambda self, queries, k, keep, cells, spread: self._plain(queries, k, keep, cells)
    )


def test_torch_gives_the_results_of_the_compiled_loops(monkeypatch, request):
    generator = torch.Generator().manual_seed(3)
    labels = torch.randn(3_000, 24, generator=generator)
    labels[100:400] = labels[7]
    queries = torch.cat([torch.randn(40, 24, generator=generator), labels[7:9]])
    exclude = sparse.random(42, 3_000, density=0.1, format="csr", rng=np.random.default_rng(0))
    index = ExactIndex(labels, block=700).remove([3, 2_999])
    first = index.search(queries, 50, exclude)
    request.getfixturevalue("plain")
    other = index.search(queries, 50, exclude)
    np.testing.assert_array_equal(first.ids, other.ids)
    np.testing.assert_array_equal(first.scores, other.scores)


def test_more_threads_give_the_same_results():
    generator = torch.Generator().manual_seed(4)
    labels, queries = torch.randn(3_000, 16, generator=generator), torch.randn(200, 16, generator=generator)
    before, results = torch.get_num_threads(), []
    for threads in (1, 3):
        torch.set_num_threads(threads)
        results.append(ExactIndex(labels, block=500).search(queries, 7))
    torch.set_num_threads(before)
    np.testing.assert_array_equal(results[0].ids, results[1].ids)
    np.testing.assert_array_equal(results[0].scores, results[1].scores)


def test_products_too_large_for_the_margin_are_still_in_order():
    labels = torch.tensor([[1e15, 0.0], [2e15, 1.0], [3e15, 0.0], [-1e15, 0.0]]).repeat(20, 1)
    top = ExactIndex(labels, block=16).search(torch.tensor([[1e20, 0.0], [0.0, 1.0]]), 3)
    assert top.ids.tolist() == [[2, 6, 10], [1, 5, 9]]
    assert np.isfinite(top.scores).all()


def test_saved_loaded_and_mapped(tmp_path):
    generator = torch.Generator().manual_seed(5)
    labels, queries = torch.randn(500, 8, generator=generator), torch.randn(9, 8, generator=generator)
    index = ExactIndex(labels, block=99).remove([4, 17])
    index.save(tmp_path / "index")
    loaded = load_index(tmp_path / "index")
    assert isinstance(loaded, ExactIndex) and loaded.settings() == index.settings()
    for k in (5, 500):
        np.testing.assert_array_equal(loaded.search(queries, k).ids, index.search(queries, k).ids)
    grown = loaded.add(torch.full((1, 8), 9.0))
    assert len(grown) == 501 and len(loaded) == 500
    assert {path.name for path in (tmp_path / "index").iterdir()} == {"index.json", "vectors.npy"}
    maps = Path("/proc/self/maps")
    assert not maps.exists() or str(tmp_path / "index" / "vectors.npy") in maps.read_text()
    np.testing.assert_array_equal(index.to("cpu").search(queries, 5).ids, index.search(queries, 5).ids)


def test_zero_queries_take_the_lowest_ids():
    top = ExactIndex(torch.randn(1_000, 8, generator=torch.Generator().manual_seed(1)), block=64).search(
        torch.zeros(2, 8), 5
    )
    assert top.ids.tolist() == [[0, 1, 2, 3, 4]] * 2


def test_k_larger_than_the_label_set_is_padded():
    top = ExactIndex(torch.eye(2)).search(torch.tensor([[1.0, 0.0]]), 4)
    assert top.ids.tolist() == [[0, 1, -1, -1]]
    assert top.scores.tolist() == [[1.0, 0.0, -np.inf, -np.inf]]


def test_no_queries():
    assert ExactIndex(torch.eye(2)).search(torch.empty(0, 2), 3).ids.shape == (0, 3)


def test_half_precision_vectors():
    top = ExactIndex(torch.eye(3, dtype=torch.bfloat16)).search(torch.eye(3, dtype=torch.float16), 1)
    assert top.ids.flatten().tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: ExactIndex(torch.empty(0, 4)), DataError),
        (lambda: ExactIndex(torch.full((2, 2), torch.nan)), DataError),
        (lambda: ExactIndex(torch.eye(2), block=0), SettingError),
        (lambda: ExactIndex(torch.eye(2)).search(torch.eye(3), 1), DataError),
        (lambda: ExactIndex(torch.eye(2)).search(torch.eye(2), 0), SettingError),
        (lambda: ExactIndex(torch.eye(2)).search(torch.full((1, 2), torch.inf), 1), DataError),
        (lambda: ExactIndex(torch.eye(2)).search(torch.eye(2), 1, sparse.csr_matrix((1, 2))), DataError),
    ],
)
def test_bad_input(make, error):
    with pytest.raises(error):
        make()


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 9)), max_size=8), st.integers(1, 12), st.sampled_from([3, 64]),
    st.integers(0, 10_000),
)  # fmt: skip
def test_add_and_remove_equal_a_full_sort_and_keep_older_indexes(steps, k, block, seed):
    generator = torch.Generator().manual_seed(seed)
    index = ExactIndex(torch.randn(4, 3, generator=generator), block=block)
    asked = torch.randn(5, 3, generator=generator)
    gone, all_states = set(), []
    for grow, number in steps:
        if grow:
            index = index.add(torch.randn(number, 3, generator=generator))
        else:
            gone = gone | {number % len(index)}
            index = index.remove([number % len(index)])
        all_states.append((index, index.vectors.clone(), gone))
    for one, vectors, removed in all_states:  # also those that others grew out of
        assert torch.equal(one.vectors, vectors)
        exclude = np.zeros((5, len(vectors)))
        exclude[:, sorted(removed)] = 1
        top = one.search(asked, k)
        np.testing.assert_array_equal(top.ids, brute_force(asked, vectors, k, sparse.csr_matrix(exclude)))


def test_two_extensions_of_an_index_are_independent():
    first = ExactIndex(torch.eye(2)).add(torch.ones(1, 2))
    one, two = first.add(torch.full((1, 2), 5.0)), first.add(torch.full((1, 2), 7.0))
    assert one.vectors[3].tolist() == [5, 5]
    assert two.vectors[3].tolist() == [7, 7]
    assert len(first) == 3


def test_growing_one_by_one_copies_seldom():
    index, places = ExactIndex(torch.eye(8)), set()
    for _ in range(500):
        index = index.add(torch.ones(1, 8))
        places.add(index.vectors.data_ptr())
    assert len(places) < 10


@pytest.mark.parametrize("rows", [torch.ones(2), torch.ones(1, 3), torch.full((1, 2), torch.nan)])
def test_vectors_of_another_size_are_refused(rows):
    with pytest.raises(DataError):
        ExactIndex(torch.eye(2)).add(rows)


@pytest.mark.parametrize("ids", [[2], [-1], [0, 9]])
def test_unknown_ids_cannot_be_removed(ids):
    with pytest.raises(DataError, match="0 to 1"):
        ExactIndex(torch.eye(2)).remove(ids)


def test_cells_of_a_block_and_of_some_rows():
    matrix = sparse.csr_matrix(np.array([[0, 1, 0, 2], [3, 0, 0, 0], [0, 1, 1, 0]], dtype=np.float32))
    matrix.data[1] = 0  # stored, but zero
    cells = Cells.of(matrix, torch.device("cpu"))
    rows, columns = cells.between(1, 3)
    assert sorted(zip(rows.tolist(), columns.tolist(), strict=True)) == [(0, 1), (2, 1), (2, 2)]
    some = cells.take(np.array([0, 2]))
    assert sorted(zip(some.rows.tolist(), some.columns.tolist(), strict=True)) == [(0, 1), (1, 1), (1, 2)]
    assert len(cells.take(np.array([1])).between(1, 4)[0]) == 0
