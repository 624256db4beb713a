"""Labels changed after training: rows, products and merged answers against plain arithmetic."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from megalabel.heads.live import FewRows, GivenAnswers, Live, MergedAnswers, Rows, spread_rows


@given(st.integers(0, 4), st.integers(0, 4), st.integers(1, 30), st.integers(0, 99))
def test_products_with_few_rows_are_those_of_the_plain_matrices(rows, queries, columns, seed):
    rng = np.random.default_rng(seed)
    x, y = (
        sparse.csr_matrix(sparse.random(n, columns, 0.2, dtype=np.float32, rng=rng), dtype=np.float32)
        for n in (rows, queries)
    )
    products = FewRows(x).products(y)
    assert products.shape == (queries, rows)
    np.testing.assert_allclose(products, (y @ x.T).toarray(), rtol=1e-5)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9), st.integers(0, 99)), max_size=12))
def test_rows_behave_like_a_dictionary(steps):
    rows, expected = Rows(), {}
    for put, label, value in steps:
        if put:
            part = {"h": {"bias": np.array([value], dtype=np.float32)}}
            rows = rows.updated(Rows(np.array([label]), np.array([label >= 5]), part))
            expected[label] = value
        else:
            rows = rows.without([label])
            expected.pop(label, None)
    assert rows.ids.tolist() == sorted(expected)
    assert rows.added.tolist() == [label >= 5 for label in sorted(expected)]
    if expected:
        assert rows.parts["h"]["bias"].tolist() == [expected[label] for label in sorted(expected)]


@given(st.integers(0, 6), st.integers(0, 3), st.integers(1, 9), st.booleans(), st.integers(0, 999))
def test_merged_answers_are_those_of_one_matrix(renamed, added, k, filtered, seed):
    rng, first = np.random.default_rng(seed), 6
    ids = np.sort(np.concatenate([rng.permutation(first)[:renamed], first + np.arange(added)])).astype(np.int64)
    scores = rng.integers(0, 5, (4, first + added)).astype(np.float32)  # with ties
    trained = scores[:, :first].copy()
    trained[:, ids[ids < first]] = -np.inf  # the trained part must not find what has changed
    live = Live(first, first + added, ids)
    answers = live.merged(GivenAnswers(trained), lambda: GivenAnswers(scores[:, ids]))
    assert isinstance(answers, MergedAnswers) == bool(len(ids))
    out = rng.random(scores.shape) < 0.3
    best = answers.best(k, sparse.csr_matrix(out, dtype=np.float32) if filtered else None)
    visible = np.where(out, -np.inf, scores) if filtered else scores
    for row, line in enumerate(visible):
        order = [label for label in np.lexsort((np.arange(len(line)), -line)) if np.isfinite(line[label])][:k]
        labels = [label for label in best.ids[row].tolist() if label >= 0]
        assert labels == order
    candidates = rng.integers(0, scores.shape[1], (4, 5))
    np.testing.assert_array_equal(answers.score(candidates), np.take_along_axis(scores, candidates, axis=1))


def test_hidden_labels_are_those_removed_or_changed():
    live = Live(6, 8, np.array([1, 6]), np.array([False, True]), removed=np.array([3, 7]))
    assert live.hidden.tolist() == [1, 3]
    assert not live.unchanged
    assert Live(6, 6).unchanged
    assert not Live(6, 7).unchanged


def test_changed_rows_replace_trained_ones():
    trained = sparse.csr_matrix(np.arange(1, 7, dtype=np.float32).reshape(3, 2))
    changed = sparse.csr_matrix(np.array([[9, 9], [8, 8]], dtype=np.float32))
    rows = spread_rows(trained, changed, Live(3, 5, np.array([1, 4])))
    assert rows.toarray().tolist() == [[1, 2], [9, 9], [5, 6], [0, 0], [8, 8]]
