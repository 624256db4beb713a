"""One-vs-all against scikit-learn's solver, search against a full product, mined pairs against sorting by hand."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.svm import LinearSVC

from megalabel.errors import DataError, SettingError
from megalabel.heads import Linear, Memory, hard_negatives
from megalabel.heads.sparse import one_against_all

EXACT = {"uniform": 0, "rounds": 1, "prune": 0.0, "tolerance": 1e-9, "passes": 100_000}


def draw(seed, rows, columns, density=0.4):
    rng = np.random.default_rng(seed)
    return sparse.random(rows, columns, density=density, format="csr", dtype=np.float32, rng=rng)


def ones(cells):
    return sparse.csr_matrix(np.asarray(cells, dtype=np.float32))


def some_positive(targets):
    cells = targets.toarray()
    cells[0, 0] = 1
    return ones(cells)


def objective(weights, bias, x, sign, cost):
    slack = np.maximum(0, 1 - sign * (x @ weights + bias))
    return 0.5 * (weights @ weights + bias**2) + (cost * slack**2).sum()


@settings(max_examples=25)
@given(st.integers(2, 25), st.sampled_from([0.1, 1.0, 10.0]), st.integers(0, 9_999))
def test_each_label_is_a_weighted_svm(rows, C, seed):
    rng = np.random.default_rng(seed)
    x, y = draw(seed, rows, 8), draw(seed + 1, rows, 3)
    y.data = rng.uniform(0.2, 1, y.nnz).astype(np.float32)
    y = some_positive(y)
    model = Linear(C=C, **EXACT).fit(x, y, ones(y.toarray() == 0))
    for label in range(3):
        line = y[:, [label]].toarray().ravel()
        twice = np.flatnonzero((line > 0) & (line < 1))  # a soft target is a positive and a negative
        sign = np.concatenate([np.where(line > 0, 1, -1), -np.ones(len(twice), dtype=int)])
        cost = np.concatenate([np.where(line > 0, line, 1), 1 - line[twice]])
        cells = np.concatenate([x.toarray(), x.toarray()[twice]]).astype(np.float64)
        weights, bias = model.weights_[label].toarray().ravel(), model.bias_[label]
        if len(set(sign)) == 1:
            continue  # scikit-learn needs both kinds
        svm = LinearSVC(C=C, loss="squared_hinge", dual=True, tol=1e-9, max_iter=1_000_000, random_state=0)
        svm.fit(cells, sign, sample_weight=cost)
        np.testing.assert_allclose(weights, svm.coef_[0], atol=2e-4)
        assert bias == pytest.approx(svm.intercept_[0], abs=2e-4)
        ours = objective(weights, bias, cells, sign, C * cost)
        assert ours <= objective(svm.coef_[0], svm.intercept_[0], cells, sign, C * cost) + 1e-5


def test_a_label_learns_from_its_own_rows_only():
    x, y, wrong = draw(0, 12, 6), ones(np.eye(12)[:, :4]), ones(np.eye(12, k=1)[:, :4])
    model = Linear(**EXACT).fit(x, y, wrong)
    for label in range(4):
        rows = np.flatnonzero((y + wrong)[:, [label]].toarray().ravel())
        alone = Linear(**EXACT).fit(x[rows], y[rows][:, [label]], wrong[rows][:, [label]])
        np.testing.assert_allclose(model.weights_[label].toarray(), alone.weights_.toarray(), atol=1e-5)
        assert model.bias_[label] == pytest.approx(alone.bias_[0], abs=1e-5)


def test_excluded_pairs_are_neither_right_nor_wrong():
    x, y = draw(0, 20, 6), ones(np.eye(20)[:, :3])
    out = ones(np.eye(20, k=-5)[:, :3] + np.eye(20)[:, :3] * [0, 0, 0])
    every = ones(y.toarray() == 0)
    with_pair = Linear(**EXACT).fit(x, y, every, out)
    without = Linear(**EXACT).fit(x, y, ones(every.toarray() - out.toarray()))
    np.testing.assert_allclose(with_pair.weights_.toarray(), without.weights_.toarray(), atol=1e-5)
    drawn = Linear(uniform=500, rounds=1, prune=0, tolerance=1e-9, passes=100_000).fit(x, y, None, out)
    np.testing.assert_allclose(drawn.weights_.toarray(), without.weights_.toarray(), atol=1e-5)  # every row is drawn


def test_further_rounds_reach_the_classifier_of_all_rows():
    x, y = draw(0, 60, 10), draw(1, 60, 8, density=0.2)
    y.data[:] = 1
    precise = {"prune": 0, "tolerance": 1e-9, "passes": 100_000, "uniform": 0}
    whole = Linear(rounds=1, **precise).fit(x, y, ones(y.toarray() == 0))
    near = Linear(rounds=2, per_row=8, **precise).fit(x, y)
    np.testing.assert_allclose(near.weights_.toarray(), whole.weights_.toarray(), atol=1e-4)


def test_small_weights_are_dropped():
    x, y = draw(0, 40, 20), draw(1, 40, 5, density=0.2)
    y.data[:] = 1
    whole, cut = (Linear(prune=prune, seed=3).fit(x, y) for prune in (0, 0.2))
    kept = whole.weights_.toarray()
    kept[np.abs(kept) < 0.2] = 0
    assert 0 < cut.weights_.nnz < whole.weights_.nnz
    one_round = Linear(prune=0.2, seed=3, rounds=1).fit(x, y)
    plain = Linear(prune=0, seed=3, rounds=1).fit(x, y).weights_.toarray()
    assert np.array_equal(one_round.weights_.toarray(), np.where(np.abs(plain) < 0.2, 0, plain))
    assert cut.weights_.has_canonical_format


def test_labels_without_rows_stay_below():
    x, y = draw(0, 10, 6), ones(np.pad(np.eye(10)[:, :2], ((0, 0), (1, 1))))
    model = Linear().fit(x, y)
    assert model.weights_.getnnz(axis=1)[[0, 3]].tolist() == [0, 0]
    assert model.bias_[[0, 3]].tolist() == [-2, -2]
    assert model.search(sparse.csr_matrix((1, 6), dtype=np.float32), 4).ids[0, 2:].tolist() == [0, 3]


@settings(max_examples=40)
@given(st.integers(1, 12), st.integers(0, 5), st.integers(1, 14), st.integers(0, 9_999))
def test_search_is_a_full_sort_and_scores_are_its_bits(labels, asked, k, seed):
    x, y = draw(seed, 15, 9), draw(seed + 1, 15, labels)
    y.data[:] = 1
    model = Linear(prune=0.01).fit(x, some_positive(y))
    queries, out = draw(seed + 2, asked, 9), draw(seed + 3, asked, labels)
    actual = model.search(queries, k, out)
    dense = (queries @ model.weights_.T).toarray() + model.bias_
    dense[out.toarray() != 0] = -np.inf
    for i, line in enumerate(dense):
        size = min(k, int(np.isfinite(line).sum()))
        np.testing.assert_allclose(actual.scores[i, :size], np.sort(line)[::-1][:size], atol=1e-5)
        np.testing.assert_allclose(line[actual.ids[i, :size]], actual.scores[i, :size], atol=1e-5)
        assert (actual.ids[i, size:] == -1).all() and np.isneginf(actual.scores[i, size:]).all()
    assert np.array_equal(model.scores(queries, actual.ids), actual.scores)


def test_every_number_of_threads_gives_the_same_bits(monkeypatch):
    monkeypatch.setattr(one_against_all, "_LABELS", 5)
    x, y = draw(0, 80, 30), draw(1, 80, 33, density=0.1)
    y.data[:] = 1
    before, actual = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            actual.append(Linear(uniform=10).fit(x, y))
    finally:
        torch.set_num_threads(before)
    for other in actual[1:]:
        assert np.array_equal(other.weights_.data, actual[0].weights_.data)
        assert np.array_equal(other.weights_.indices, actual[0].weights_.indices)
        assert np.array_equal(other.bias_, actual[0].bias_)


def test_seed_decides_the_draws():
    x, y = draw(0, 80, 30), draw(1, 80, 10, density=0.1)
    y.data[:] = 1
    one, two, other = (Linear(uniform=10, rounds=1, seed=seed).fit(x, y).bias_ for seed in (0, 0, 1))
    assert np.array_equal(one, two) and not np.array_equal(one, other)


def test_save_and_load(tmp_path):
    x, y = draw(0, 30, 12), draw(1, 30, 6)
    model = Linear(C=2.0, prune=0.1).fit(x, sparse.csr_matrix(y > 0))
    model.save(tmp_path / "linear")
    again = Linear.load(tmp_path / "linear")
    assert again.config() == model.config() and repr(again) == repr(model)
    assert repr(model).startswith("Linear(C=2.0, prune=0.1, uniform=")
    assert np.array_equal(again.weights_.toarray(), model.weights_.toarray())
    one, other = model.search(x, 3), again.search(x, 3)
    assert np.array_equal(one.ids, other.ids) and np.array_equal(one.scores, other.scores)
    (tmp_path / "linear" / "linear.safetensors").write_bytes(b"x")
    with pytest.raises(DataError, match="weights cannot be read"):
        Linear.load(tmp_path / "linear")


def test_bad_input():
    x, y = draw(0, 10, 6), ones(np.eye(10)[:, :3])
    model = Linear().fit(x, y)
    for call, message in [
        (lambda: model.search(draw(0, 2, 7), 1), "queries has 7 columns, 6 were expected; encode them"),
        (lambda: model.search(x.toarray(), 1), "queries must be a sparse matrix, not ndarray"),
        (lambda: model.search(x, 1, draw(0, 9, 3)), "exclude must be a sparse matrix 10 x 3, not 9 x 3"),
        (lambda: model.scores(x, np.zeros((3, 1), dtype=np.int64)), r"candidates must be \[10, C\]"),
        (lambda: model.scores(x, np.full((10, 1), 3)), "candidates must lie in -1 to 2"),
        (lambda: Linear().fit(draw(0, 0, 6), y[:0]), "nothing to train on: 0 rows"),
        (lambda: Linear().fit(x, y * 0), "targets must hold relevance"),
        (lambda: Linear().fit(x, y * 2), "targets must hold relevance"),
        (lambda: Linear().fit(x, y[:9]), "targets must be a sparse matrix 10 x 3, not 9 x 3"),
        (lambda: Linear().fit(x, y, y[:9]), "negatives must be"),
        (lambda: Linear().fit(x * np.nan, y), "NaN"),
    ]:
        with pytest.raises(DataError, match=message):
            call()
    for settings_, message in [
        ({"C": -1}, "C must be above 0, not -1"),
        ({"C": float("nan")}, "C must be above 0"),
        ({"tolerance": 0}, "tolerance must be above 0"),
        ({"prune": -0.1}, "prune must be at least 0"),
        ({"uniform": -1}, "uniform must be at least 0"),
        ({"rounds": 0}, "rounds must be at least 1"),
        ({"passes": 0}, "passes must be at least 1"),
    ]:
        with pytest.raises(SettingError, match=message):
            Linear(**settings_).fit(x, y)
    for call, message in [
        (lambda: Linear().search(x, 1), "there are no weights yet; call fit first"),
        (lambda: Linear().save("nowhere"), "there are no weights yet"),
        (lambda: model.search(x, 0), "k must be at least 1"),
    ]:
        with pytest.raises(SettingError, match=message):
            call()


@settings(max_examples=40)
@given(st.integers(1, 20), st.integers(1, 6), st.booleans(), st.integers(0, 9_999))
def test_hard_negatives_are_the_best_wrong_labels_of_the_other_rows(rows, per_row, filtered, seed):
    x, y = draw(seed, rows, 9), draw(seed + 1, rows, 7)
    out = draw(seed + 2, rows, 7, density=0.2) if filtered else None
    memory = Memory(neighbours=5).fit(x, y)
    negatives = hard_negatives(memory, x, y, out, per_row=per_row)
    scores = memory.scores(x, rows=np.arange(rows)).toarray()
    scores[y.toarray() > 0] = 0
    if out is not None:
        scores[out.toarray() > 0] = 0
    expected = np.zeros_like(scores)
    for i, line in enumerate(scores):
        best = np.lexsort((np.arange(7), -line))[:per_row]
        expected[i, best] = line[best]
    assert np.array_equal(negatives.toarray(), expected)
    assert negatives.nnz == np.count_nonzero(expected) and negatives.has_sorted_indices


def test_hard_negatives_of_bad_input():
    x, y = draw(0, 6, 5), draw(1, 6, 4)
    memory = Memory().fit(x, y)
    with pytest.raises(SettingError, match="per_row must be at least 1"):
        hard_negatives(memory, x, y, per_row=0)
    with pytest.raises(DataError, match="targets must be a sparse matrix 6 x 4"):
        hard_negatives(memory, x, y[:, :3])
    with pytest.raises(DataError, match="exclude must be a sparse matrix 6 x 4"):
        hard_negatives(memory, x, y, y[:5])


def test_labels_trained_again_keep_apart_what_they_told_apart():
    """A row that the known classifier has learnt to score low stays a negative: it is near the label's own rows."""
    x = ones([[1, 0, 0], [0.9, 0.45, 0], [0, 0, 1]])
    y, none = ones(np.eye(3)), sparse.csr_matrix((3, 3), dtype=np.float32)
    known = Linear(uniform=0).fit(x, y, ones([[0, 0, 0], [1, 0, 0], [0, 0, 0]]))
    known.bias_[0] = -50
    again = Linear(uniform=0, per_row=1).refit(known, x, y, none, np.arange(3))
    assert again.search(x, 1).ids[:, 0].tolist() == [0, 1, 2]
    assert again.scores(x[1], np.array([[0]])).item() < 0


def grown(seed=0):
    """Rows and targets, the places of most of the rows, and negatives of the others."""
    x, y = draw(seed, 40, 12), some_positive(draw(seed + 1, 40, 6, density=0.2))
    y.data[:] = 1
    places = np.delete(np.arange(40), [3, 17, 30])[::-1].copy()
    others = np.zeros((40, 6))
    others[[3, 17, 30]] = y[[3, 17, 30]].toarray() == 0
    return x, y, places, ones(others), sparse.csr_matrix((40, 6), dtype=np.float32)


def test_a_further_fit_reaches_the_optimum_of_all_rows():
    """Rows move, some are new; with every wrong label among the negatives the problem is that of a fit from scratch."""
    x, y, places, others, none = grown()
    exact = {**EXACT, "per_row": 6}
    known = Linear(**exact).fit(x[places], y[places], ones(y[places].toarray() == 0))
    further = Linear(**exact).fit_further(known, x, y, others, none, places)
    whole = Linear(**exact).fit(x, y, ones(y.toarray() == 0))
    np.testing.assert_allclose(further.weights_.toarray(), whole.weights_.toarray(), atol=2e-4)
    np.testing.assert_allclose(further.bias_, whole.bias_, atol=2e-4)


def test_a_further_fit_keeps_labels_apart_that_had_no_rows_before():
    """A label that only new rows have would be right for every row if these were all it is trained on."""
    x, y, places, others, none = grown()
    cells = y.toarray()
    cells[:, 5] = 0
    cells[3, 5] = 1
    y = ones(cells)
    known = Linear(uniform=20).fit(x[places], y[places])
    further = Linear(uniform=20).fit_further(known, x, y, others, none, places)
    scores = further.scores(x, np.full((40, 1), 5)).ravel()
    assert (np.delete(scores, 3) < 0).mean() > 0.9


def test_a_further_fit_starts_from_what_was_saved(tmp_path):
    x, y, places, others, none = grown()
    known = Linear(uniform=5).fit(x[places], y[places])
    known.save(tmp_path / "known")
    one, two = (Linear().fit_further(head, x, y, others, none, places)
                for head in (known, Linear.load(tmp_path / "known")))  # fmt: skip
    assert np.array_equal(one.weights_.data, two.weights_.data) and np.array_equal(one.bias_, two.bias_)


def test_a_finished_head_keeps_nothing_to_start_from(tmp_path):
    x, y, places, others, none = grown()
    known = Linear(uniform=5).fit(x[places], y[places])
    finished = known.finished()
    assert finished.weights_ is known.weights_ and known.duals_ is not None
    finished.save(tmp_path / "small")
    known.save(tmp_path / "large")
    small, large = ((tmp_path / name / "linear.safetensors").stat().st_size for name in ("small", "large"))
    assert small < large
    for head in (finished, Linear.load(tmp_path / "small")):
        with pytest.raises(SettingError, match="cannot be trained further"):
            Linear().fit_further(head, x, y, others, none, places)


def test_negatives_mined_for_some_rows_are_those_of_all():
    x, y, *_ = grown()
    memory = Memory().fit(x, y)
    every, some = (hard_negatives(memory, x, y, per_row=3, only=only) for only in (None, np.array([3, 17, 30])))
    assert some.shape == every.shape and some.nnz > 0
    assert np.array_equal(some[[3, 17, 30]].toarray(), every[[3, 17, 30]].toarray())
    assert some.nnz == some[[3, 17, 30]].nnz
