"""A tree of rankers: each against scikit-learn's solver, a full beam against all paths, negatives by definition."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.svm import LinearSVC

from megalabel.errors import DataError, SettingError
from megalabel.graphs import partition, pifa
from megalabel.heads.live import Live
from megalabel.heads.sparse import label_tree, tree_level
from megalabel.heads.tree import Tree, TreeSettings

EXACT = {"prune": 0.0, "tolerance": 1e-9, "passes": 100_000}


def ones(cells):
    return sparse.csr_matrix(np.asarray(cells, dtype=np.float32))


def draw(rows=120, columns=30, labels=40, seed=0):
    """Return rows that say something about their labels: every label has words of its own."""
    rng = np.random.default_rng(seed)
    y = (rng.random((rows, labels)) < 2.5 / labels).astype(np.float32)
    y[np.arange(rows), rng.integers(labels, size=rows)] = 1
    words = (rng.random((labels, columns)) < 0.15) * rng.random((labels, columns))
    x = y @ words + (rng.random((rows, columns)) < 0.05)
    x /= np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-9)
    return sparse.csr_matrix(x.astype(np.float32)), ones(y)


def fitted(seed=0, **settings):
    x, y = draw(seed=seed)
    return Tree(leaf=4, branches=4, seed=seed, **settings).fit(x, y), x, y


def naive_scores(tree, x):
    """Return the scores [Q, L] of all labels: log(1e-4 + the mean over trees of products along the path)."""
    total = 0
    for levels in tree.trees_:
        above = np.ones((x.shape[0], 1))
        for level in levels:
            values = (x @ level.weights.T).toarray() + level.bias
            above = above[:, level.parent] * np.exp(-(np.maximum(0, 1 - values) ** 3))
        total = total + above
    return np.log(1e-4 + total / len(tree.trees_))


def naive_targets(levels, y):
    """Return which nodes of each level hold a label of each row, the root first."""
    known = [y.toarray() > 0]
    for level in reversed(levels):
        groups = np.zeros((y.shape[0], level.parents), dtype=bool)
        for node, parent in enumerate(level.parent):
            groups[:, parent] |= known[0][:, node]
        known.insert(0, groups)
    return known


@pytest.mark.parametrize("mined", [0, 2])
def test_each_node_is_an_svm_over_the_rows_of_its_parent(mined):
    tree, x, y = fitted(mined=mined, C=2.0, C_negative=0.5, **EXACT)
    (levels,) = tree.trees_
    known = naive_targets(levels, y)
    assert [level.weights.shape[0] for level in levels] == [4, 10, 40]
    beam = None
    for depth, level in enumerate(levels):
        rows_of = known[depth] | (depth == 0)
        if mined and depth:
            for row, best in enumerate(beam):
                rows_of[row, best] = True  # ranked best by the levels above, right or wrong
        scores = np.zeros((x.shape[0], len(level.bias)))
        for node in range(len(level.bias)):
            rows = np.flatnonzero(rows_of[:, level.parent[node]])
            sign = np.where(known[depth + 1][rows, node], 1, -1)
            if len(set(sign)) < 2:
                continue
            cost = np.where(sign > 0, 2.0, 0.5)
            svm = LinearSVC(C=1.0, loss="squared_hinge", dual=True, tol=1e-9, max_iter=1_000_000, random_state=0)
            svm.fit(x[rows].astype(np.float64), sign, sample_weight=cost)
            np.testing.assert_allclose(level.weights[node].toarray()[0], svm.coef_[0], atol=5e-4)
            assert level.bias[node] == pytest.approx(svm.intercept_[0], abs=5e-4)
        values = -(np.maximum(0, 1 - (x @ level.weights.T).toarray() - level.bias) ** 3)
        inside = np.zeros((x.shape[0], level.parents), dtype=bool)
        if depth == 0:
            above, inside[:] = np.zeros((x.shape[0], 1)), True
        else:
            np.put_along_axis(inside, beam, True, axis=1)
        scores = above[:, level.parent] + values
        above = scores
        beam = np.argsort(-np.where(inside[:, level.parent], scores, -np.inf), axis=1, kind="stable")[:, :2]


def test_teacher_forcing_keeps_positives():
    """Every positive row of a node is among the rows of its parent, on every level."""
    tree, _, y = fitted()
    known = naive_targets(tree.trees_[0], y)
    for level, above, own in zip(tree.trees_[0], known, known[1:], strict=False):
        assert np.all(above[:, level.parent] >= own)
    assert known[0].all()


@pytest.mark.parametrize("trees", [1, 3])
def test_a_full_beam_equals_exhaustive_scoring(trees, monkeypatch):
    tree, x, _ = fitted(trees=trees, beam=1000)
    expected = naive_scores(tree, x)
    found = tree.search(x, 40)
    assert np.array_equal(np.sort(found.ids, axis=1), np.tile(np.arange(40), (x.shape[0], 1)))
    np.testing.assert_allclose(found.scores, -np.sort(-expected, axis=1), atol=1e-5)
    every = np.tile(np.arange(40), (x.shape[0], 1))
    np.testing.assert_allclose(tree.scores(x, every), expected, atol=1e-5)
    assert np.array_equal(np.take_along_axis(tree.scores(x, every), found.ids, axis=1), found.scores)
    for lookup in (0, 10**9):  # all children of a parent are added up, or nodes one by one
        monkeypatch.setattr(tree_level, "_LOOKUP", lookup)
        assert np.array_equal(tree.scores(x, found.ids[:, :3]), found.scores[:, :3])


def test_a_narrow_beam_scores_what_it_finds_as_a_full_one_does():
    tree, x, _ = fitted(beam=1)
    found = tree.search(x, 10)
    assert np.any(found.ids < 0)  # a cluster has at most 4 labels
    real = found.ids >= 0
    assert np.array_equal(tree.scores(x, found.ids)[real], found.scores[real])
    assert np.all(np.isneginf(tree.scores(x, found.ids)[~real]))
    assert np.all(found.scores[~real] <= 0)


def test_clusters_are_balanced_cover_all_labels_and_form_a_tree():
    tree, _, _ = fitted(trees=2)
    for levels in tree.trees_:
        assert levels[0].parents == 1
        for above, level in pairwise(levels):
            assert level.parents == len(above.bias)
            assert np.array_equal(np.unique(level.parent), np.arange(level.parents))
        assert np.bincount(levels[-1].parent).tolist() == [4] * 10
    assert not np.array_equal(*(levels[-1].parent for levels in tree.trees_))


def test_the_same_with_any_number_of_threads():
    threads = torch.get_num_threads()
    try:
        weights = []
        for count in (1, 3):
            torch.set_num_threads(count)
            weights.append(fitted(mined=2)[0].trees_[0][-1].weights)
    finally:
        torch.set_num_threads(threads)
    assert (weights[0] != weights[1]).nnz == 0


def test_excluded_pairs_are_neither_learnt_nor_found():
    x, y = draw()
    pairs = sparse.csr_matrix(([1.0], ([0], [int(y[0].indices[0])])), shape=y.shape, dtype=np.float32)
    tree, plain = (Tree(leaf=4, branches=4, **EXACT).fit(x, y, out) for out in (pairs, None))
    label = int(pairs.indices[0])
    assert not np.allclose(tree.trees_[0][-1].weights[label].toarray(), plain.trees_[0][-1].weights[label].toarray())
    assert label not in tree.search(x[:1], 40, pairs[:1]).ids[0]


def test_soft_targets_are_positive_and_negative():
    """A target of 0.3 weighs 0.3 of a positive and 0.7 of a negative."""
    x, y = draw(labels=5)
    y.data[:] = np.random.default_rng(2).uniform(0.2, 1, y.nnz)
    level = Tree(leaf=10, C=2.0, C_negative=0.5, **EXACT).fit(x, y).trees_[0][0]
    for label in range(5):
        relevance = y[:, [label]].toarray().ravel()
        cost = np.concatenate([2.0 * relevance, 0.5 * (1 - relevance)])
        sign = np.repeat([1, -1], x.shape[0])
        svm = LinearSVC(C=1.0, loss="squared_hinge", dual=True, tol=1e-9, max_iter=1_000_000, random_state=0)
        svm.fit(sparse.vstack([x, x]).astype(np.float64)[cost > 0], sign[cost > 0], sample_weight=cost[cost > 0])
        np.testing.assert_allclose(level.weights[label].toarray()[0], svm.coef_[0], atol=5e-4)


def test_labels_without_points_come_last():
    x, y = draw()
    cells = y.toarray()
    cells[:, 7] = 0
    tree = Tree(leaf=4, branches=4, beam=100).fit(x, ones(cells))
    last = tree.trees_[0][-1]
    assert (last.bias[7], last.weights[7].nnz) == (-2, 0)


def test_pruning_and_files(tmp_path):
    tree, x, _ = fitted(trees=2, prune=0.3)
    assert min(abs(level.weights.data).min() for level in tree.trees_[0]) >= 0.3
    tree.save(tmp_path / "tree")
    again = Tree.load(tmp_path / "tree")
    assert repr(again) == repr(tree)
    first, second = tree.search(x, 5), again.search(x, 5)
    assert np.array_equal(first.ids, second.ids)
    assert np.array_equal(first.scores, second.scores)
    again.trees_[0][-1].parent[0] = 99
    again.save(tmp_path / "damaged")
    with pytest.raises(DataError, match="levels of the tree are damaged"):
        Tree.load(tmp_path / "damaged")


class Texts:
    """New or renamed labels with given features."""

    def __init__(self, ids, rows, added):
        self.ids, self.rows, self.added = np.array(ids), rows, added
        self.texts, self.rare = ["a text"] * len(ids), np.arange(5)

    def features(self, name):
        return self.rows


class Asked:
    def __init__(self, rows):
        self.rows = rows

    def features(self, name):
        return self.rows


def live_of(tree, ids, rows, added, labels=40):
    parts = tree.new_rows(Texts(ids, rows, added))
    total = max(labels, max(ids) + 1)
    return Live(labels, total, np.array(ids), np.full(len(ids), added), parts=parts)


@pytest.mark.parametrize("trees", [1, 2])
def test_new_labels_score_before_and_after_they_are_merged(trees):
    tree, x, _ = fitted(trees=trees, beam=100)
    live = live_of(tree, [40, 41], x[3:5], added=True)
    answers, grown = tree.answers(Asked(x), live), tree.grown(live)
    assert [len(level.bias) for level in grown.trees_[0]] == [4, 10, 42]
    best = answers.best(42, None)
    merged = grown.search(x, 42)
    assert np.array_equal(best.ids[:, :5], merged.ids[:, :5])
    np.testing.assert_allclose(best.scores, merged.scores, atol=1e-5)
    assert 40 in answers.best(3, None).ids[3]  # its own text finds it
    candidates = np.tile(np.arange(42), (x.shape[0], 1))
    np.testing.assert_allclose(answers.score(candidates), grown.scores(x, candidates), atol=1e-5)


def test_renamed_and_removed_labels():
    tree, x, _ = fitted(beam=100)
    live = live_of(tree, [5], None, added=False)
    answers = tree.answers(Asked(x), live)
    candidates = np.tile(np.arange(40), (x.shape[0], 1))
    np.testing.assert_allclose(answers.score(candidates), tree.scores(x, candidates), atol=1e-5)
    gone = tree.answers(Asked(x), Live(40, 40, removed=np.array([3])))
    assert 3 not in gone.best(40, None).ids
    assert 3 in tree.search(x, 40).ids


def test_vectors_stand_beside_ngrams():
    x, y = draw()
    vectors = np.random.default_rng(1).normal(size=(x.shape[0], 6)).astype(np.float32)
    tree = Tree(vectors="dual")
    rows = tree.features({"ngrams": x, "dual": vectors}.__getitem__)
    assert rows.shape == (x.shape[0], x.shape[1] + 6)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    np.testing.assert_allclose(rows.toarray()[:, x.shape[1] :], unit, atol=1e-6)
    plain = Tree(leaf=40, **EXACT).fit(rows, y).trees_[0][0]  # one cluster, so the same rows for every label
    beside = Tree(leaf=40, vectors="dual", **EXACT).fit(x, y, vectors=vectors).trees_[0][0]
    np.testing.assert_allclose(plain.weights.toarray(), beside.weights.toarray(), atol=1e-4)
    tree = Tree(leaf=4, branches=4, vectors="dual", mined=2, prune=0.2).fit(x, y, vectors=vectors)
    last = tree.trees_[0][-1]
    assert np.array_equal(last.parent, partition(pifa(unit, y), size=4, seed=0))
    assert last.weights[:, x.shape[1] :].nnz > 0.9 * 6 * 40  # not pruned
    assert abs(last.weights[:, : x.shape[1]].data).min() >= 0.2
    assert tree.search(rows, 1).ids.shape == (x.shape[0], 1)


def test_mistakes_are_one_line():
    x, y = draw()
    with pytest.raises(SettingError, match="beam must be at least 1"):
        Tree(beam=0).fit(x, y)
    with pytest.raises(SettingError, match="call fit first"):
        Tree().search(x, 1)
    with pytest.raises(DataError, match="31 columns, 30 were expected"):
        Tree().fit(x, y).search(sparse.csr_matrix((1, 31), dtype=np.float32), 1)
    with pytest.raises(DataError, match="nothing to train on"):
        Tree().fit(x[:0], y[:0])
    with pytest.raises(ValueError, match="branches must be a power of two"):
        TreeSettings(branches=12)
    with pytest.raises(ValueError, match="vectors names a dense head"):
        TreeSettings(vectors="ngrams")
    with pytest.raises(DataError, match="candidates must lie in -1 to 39"):
        Tree().fit(x, y).scores(x, np.full((x.shape[0], 1), 40))


def test_many_blocks_give_what_one_gives(monkeypatch):
    plain = fitted()[0]
    monkeypatch.setattr(label_tree, "_PARENTS", 1)
    assert (fitted()[0].trees_[0][-1].weights != plain.trees_[0][-1].weights).nnz == 0
