"""Memory against plain sums over all training rows."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from megalabel.errors import DataError, SettingError
from megalabel.heads import Memory


def draw(seed, rows, columns, density=0.4):
    rng = np.random.default_rng(seed)
    return sparse.random(rows, columns, density=density, format="csr", dtype=np.float32, rng=rng)


def cosines(queries, rows):
    def unit(matrix):
        lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
        return matrix / np.where(lengths > 0, lengths, 1)

    return unit(queries.astype(np.float64)) @ unit(rows.astype(np.float64)).T


def by_hand(queries, rows, targets, nearest, power, own=None):
    scores = np.zeros((len(queries), targets.shape[1]))
    for i, line in enumerate(cosines(queries, rows)):
        if own is not None and own[i] >= 0:
            line[own[i]] = -1
        best = [j for j in np.lexsort((np.arange(len(line)), -line)) if line[j] > 1e-9][:nearest]
        weight = line[best] ** power
        if best:
            scores[i] = weight @ targets[best] / weight.sum()
    return scores


@settings(max_examples=60)
@given(
    st.integers(1, 30), st.integers(0, 6), st.integers(1, 40), st.sampled_from([0.0, 1.0, 3.0]), st.booleans(),
    st.booleans(), st.integers(0, 9_999),
)  # fmt: skip
def test_scores_are_the_votes_of_the_nearest(rows, asked, nearest, power, dense, alone, seed):
    x, q, y = draw(seed, rows, 9), draw(seed + 1, asked, 9), draw(seed + 2, rows, 5)
    own = np.random.default_rng(seed).integers(-1, rows, asked) if alone else None
    expected = by_hand(q.toarray(), x.toarray(), y.toarray(), nearest, power, own)
    one, other = (x.toarray(), q.toarray()) if dense else (x, q)
    memory = Memory(neighbours=nearest, power=power).fit(one, y)
    actual = memory.scores(other, rows=own)
    assert actual.dtype == np.float32 and actual.has_sorted_indices
    np.testing.assert_allclose(actual.toarray(), expected, atol=2e-5)


@pytest.mark.parametrize("dense", [False, True])
def test_neighbours_come_by_cosine_then_by_row(dense):
    x = np.array([[0, 1], [2, 0], [3, 3], [1, 0], [5, 0], [0, 0]], dtype=np.float32)
    memory = Memory().fit(x if dense else sparse.csr_matrix(x), sparse.csr_matrix(np.eye(6, dtype=np.float32)))
    asked = np.array([[1, 0], [0, 0]], dtype=np.float32)
    asked = asked if dense else sparse.csr_matrix(asked)
    actual = memory.search(asked, 5)
    assert actual.ids.tolist() == [[1, 3, 4, 2, -1], [-1] * 5]
    np.testing.assert_allclose(actual.scores[0, :4], [1, 1, 1, 0.5**0.5], atol=1e-6)
    assert np.isneginf(actual.scores[0, 4]) and np.isneginf(actual.scores[1]).all()
    assert memory.search(asked, 2, rows=np.array([1, -1])).ids.tolist() == [[3, 4], [-1, -1]]
    assert memory.search(asked, 1).ids.tolist() == [[1], [-1]]


@settings(max_examples=40)
@given(st.integers(1, 60), st.integers(1, 20), st.integers(0, 9_999))
def test_many_ties_keep_their_order(rows, k, seed):
    rng = np.random.default_rng(seed)
    x = sparse.csr_matrix(np.eye(3, dtype=np.float32)[rng.integers(0, 3, rows)])
    actual = (
        Memory()
        .fit(x, sparse.csr_matrix((rows, 2), dtype=np.float32))
        .search(sparse.csr_matrix(np.array([[3, 2, 1]], dtype=np.float32)), k)
    )
    kind = x.indices
    expected = np.lexsort((np.arange(rows), kind))[:k]
    assert actual.ids[0, : len(expected)].tolist() == expected.tolist()
    assert (actual.ids[0, len(expected) :] == -1).all()


def test_a_row_does_not_find_itself():
    x = sparse.csr_matrix(np.eye(4, dtype=np.float32) + 0.1)
    y = sparse.csr_matrix(np.eye(4, dtype=np.float32))
    memory = Memory().fit(x, y)
    assert memory.scores(x).toarray().argmax(axis=1).tolist() == [0, 1, 2, 3]
    assert memory.scores(x, rows=np.arange(4)).diagonal().tolist() == [0] * 4


def test_every_number_of_threads_gives_the_same_bits():
    x, q, y = draw(0, 400, 60), draw(1, 600, 60), draw(2, 400, 30)
    memory = Memory(neighbours=20).fit(x, y)
    before, actual = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            actual.append((memory.search(q, 20), memory.scores(q)))
    finally:
        torch.set_num_threads(before)
    for near, scores in actual[1:]:
        assert np.array_equal(near.ids, actual[0][0].ids) and np.array_equal(near.scores, actual[0][0].scores)
        assert np.array_equal(scores.data, actual[0][1].data) and np.array_equal(scores.indices, actual[0][1].indices)


@pytest.mark.parametrize("dense", [False, True])
def test_save_and_load(tmp_path, dense):
    x, y = draw(3, 12, 8), draw(4, 12, 6)
    rows = x.toarray() if dense else x
    memory = Memory(neighbours=4, power=2.0, max_df=0.9, features="dual").fit(rows, y)
    memory.save(tmp_path / "memory")
    again = Memory.load(tmp_path / "memory")
    assert again.config() == memory.config()
    assert repr(again) == "Memory(neighbours=4, power=2.0, max_df=0.9, features='dual')"
    assert np.array_equal(again.scores(rows).toarray(), memory.scores(rows).toarray())
    assert np.array_equal(again.search(rows, 3).scores, memory.search(rows, 3).scores)


def test_frequent_features_count_in_scores_but_find_no_neighbours():
    x = np.array([[1, 1, 0], [1, 0, 1], [1, 0, 0], [1, 3, 0]], dtype=np.float32)
    rows, y = sparse.csr_matrix(x), sparse.csr_matrix(np.eye(4, dtype=np.float32))
    asked = sparse.csr_matrix(np.array([[1, 1, 0], [2, 0, 0]], dtype=np.float32))
    actual = Memory(max_df=0.5).fit(rows, y).search(asked, 3)
    assert actual.ids.tolist() == [[0, 3, -1], [-1, -1, -1]]  # column 0 is in every row
    exact = Memory().fit(rows, y).search(asked, 4)
    assert exact.ids.tolist() == [[0, 3, 2, 1], [2, 0, 1, 3]]
    assert np.array_equal(actual.scores[0, :2], exact.scores[0, :2])


@settings(max_examples=30)
@given(st.integers(1, 30), st.integers(1, 6), st.floats(0.3, 1), st.integers(0, 9_999))
def test_proposals_are_scored_like_the_exact_search(rows, k, max_df, seed):
    x, q, y = draw(seed, rows, 9), draw(seed + 1, 5, 9), draw(seed + 2, rows, 5)
    actual, exact = (Memory(max_df=share).fit(x, y).search(q, n) for share, n in ((max_df, k), (1.0, rows)))
    whole = [dict(zip(i.tolist(), s.tolist(), strict=True)) for i, s in zip(exact.ids, exact.scores, strict=True)]
    for i, (ids, scores) in enumerate(zip(actual.ids.tolist(), actual.scores.tolist(), strict=True)):
        assert scores == sorted(scores, reverse=True)
        assert all(whole[i][j] == pytest.approx(s, rel=1e-6) for j, s in zip(ids, scores, strict=True) if j >= 0)


def test_inputs_are_not_changed():
    x = sparse.csr_matrix((np.ones(3, dtype=np.float32), [2, 0, 2], [0, 3]), shape=(1, 3))  # unsorted, one twice
    Memory().fit(x, sparse.csr_matrix(np.ones((1, 1), dtype=np.float32))).scores(x)
    assert x.indices.tolist() == [2, 0, 2] and x.data.tolist() == [1, 1, 1]


def test_bad_input():
    x, y = draw(0, 6, 5), draw(1, 6, 4)
    memory = Memory().fit(x, y)
    dense = Memory().fit(x.toarray(), y)
    for call, message in [
        (lambda: memory.scores(draw(0, 2, 7)), "queries has 7 columns, 5 were expected"),
        (lambda: memory.scores(x.toarray()), "queries must be a sparse matrix"),
        (lambda: dense.scores(x), "queries must be an array"),
        (lambda: dense.scores(np.zeros((2, 7), dtype=np.float32)), r"queries must be \[Q, 5\]"),
        (lambda: dense.scores(np.full((1, 5), np.nan, dtype=np.float32)), "NaN"),
        (lambda: memory.scores(x, rows=np.arange(3)), "rows must hold one number from -1 to 5"),
        (lambda: memory.scores(x, rows=np.arange(1, 7)), "rows must hold"),
        (lambda: Memory().fit(x, draw(1, 5, 4)), "targets must be a sparse matrix 6 x 4, not 5 x 4"),
        (lambda: Memory().fit(draw(0, 0, 5), draw(0, 0, 4)), "no training rows"),
    ]:
        with pytest.raises(DataError, match=message):
            call()
    for call, message in [
        (lambda: Memory().scores(x), "the memory is empty"),
        (lambda: Memory().save("nowhere"), "the memory is empty"),
        (lambda: memory.search(x, 0), "k must be at least 1"),
        (lambda: Memory(neighbours=0).fit(x, y), "neighbours must be at least 1"),
        (lambda: Memory(max_df=0).fit(x, y), "max_df must be above 0"),
        (lambda: Memory(power=-1).fit(x, y), "power must be at least 0"),
    ]:
        with pytest.raises(SettingError, match=message):
            call()


def test_damaged_folders_give_one_line(tmp_path):
    from safetensors.numpy import load_file, save_file

    folder = tmp_path / "memory"
    Memory().fit(draw(0, 6, 5), draw(1, 6, 4)).save(folder)
    path = folder / "memory.safetensors"
    good = load_file(path)
    for change, message in [
        ({"targets.indices": good["targets.indices"] + 9}, "targets is damaged"),
        ({"vectors.indptr": good["vectors.indptr"][:-1]}, "vectors is damaged"),
        ({"targets.shape": np.array([5, 4])}, "targets is damaged"),
        ({"more": np.zeros(1)}, "the file holds"),
    ]:
        save_file(good | change, path)
        with pytest.raises(DataError, match=message):
            Memory.load(folder)
