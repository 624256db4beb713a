"""Fusion by a decision tree: the tree against scikit-learn's, the score against a slow loop."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.tree import DecisionTreeClassifier

from megalabel.errors import DataError, SettingError
from megalabel.fusion import Calibration, Fusion, TreeFusion, read_fusion
from megalabel.fusion.tree import DecisionTree

LABELS = 30


def make(seed=0, queries=300, width=8):
    """Candidates with scores that help, and frequencies that help too."""
    rng = np.random.default_rng(seed)
    candidates = np.sort(rng.random((queries, LABELS)).argsort(axis=1)[:, :width], axis=1)
    counts = rng.integers(0, 200, LABELS)
    scores = {name: rng.normal(size=candidates.shape).astype(np.float32) for name in ("dual", "classifier")}
    chance = 1 / (1 + np.exp(2 - 2 * scores["dual"] - scores["classifier"] - 0.01 * counts[candidates]))
    hit = rng.random(candidates.shape) < chance
    rows = np.nonzero(hit)[0]
    targets = sparse.csr_matrix((np.ones(len(rows), np.float32), (rows, candidates[hit])), shape=(queries, LABELS))
    return scores, candidates, targets, counts


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 400), st.integers(1, 7), st.sampled_from([1, 5, 20]))
def test_trees_are_evaluated_and_split_as_by_scikit_learn(seed, cells, depth, least):
    """Of equally good splits scikit-learn takes one by chance, so the first split of both is compared by its gain."""
    rng = np.random.default_rng(seed)
    inputs = rng.normal(size=(cells, 3)).astype(np.float32)
    targets = rng.random(cells) < 1 / (1 + np.exp(-inputs[:, 0] - inputs[:, 1] * inputs[:, 2]))
    options = {"min_samples_leaf": least, "random_state": 0}
    reference = DecisionTreeClassifier(max_depth=depth, **options).fit(inputs, targets)
    others = rng.normal(size=(200, 3)).astype(np.float32)
    plain = from_reference(reference)
    np.testing.assert_allclose(plain.predict(others), chances(reference, others), atol=1e-12)
    tree = DecisionTree.fit(inputs, targets.astype(float), depth=1, min_leaf=least)
    stump = DecisionTreeClassifier(max_depth=1, **options).fit(inputs, targets)
    actual, expected = tree.predict(inputs), chances(stump, inputs)
    assert np.mean(actual * (1 - actual)) == pytest.approx(np.mean(expected * (1 - expected)), abs=1e-9)


def chances(reference, rows):
    classes = list(reference.classes_)
    return reference.predict_proba(rows)[:, classes.index(True)] if True in classes else np.zeros(len(rows))


def from_reference(reference):
    """The tree of scikit-learn as plain arrays."""
    tree, classes = reference.tree_, list(reference.classes_)
    column = classes.index(True) if True in classes else None
    leaf = tree.children_left < 0
    values = np.zeros(len(leaf)) if column is None else tree.value[:, 0, column] / tree.value[:, 0].sum(axis=1)
    return DecisionTree(
        tuple(np.where(leaf, -1, tree.feature).tolist()),
        tuple(np.where(leaf, 0.0, tree.threshold).tolist()),
        tuple(tree.children_left.tolist()),
        tuple(tree.children_right.tolist()),
        tuple(values.tolist()),
    )


def test_a_tree_without_ties_is_that_of_scikit_learn():
    """Well separated gains: node for node the same questions."""
    rng = np.random.default_rng(1)
    inputs = rng.normal(size=(20_000, 3)).astype(np.float32)
    targets = (rng.random(20_000) < 1 / (1 + np.exp(1 - 2 * inputs[:, 0] - inputs[:, 1] * inputs[:, 2]))).astype(float)
    tree = DecisionTree.fit(inputs, targets, depth=7, min_leaf=20)
    reference = DecisionTreeClassifier(max_depth=7, min_samples_leaf=20, random_state=3).fit(inputs, targets > 0)
    others = rng.normal(size=(5_000, 3)).astype(np.float32)
    for rows in (inputs, others):
        np.testing.assert_allclose(tree.predict(rows), reference.predict_proba(rows)[:, 1], atol=1e-12)
    assert len(tree.values) == reference.tree_.node_count


def test_the_score_is_that_of_a_slow_loop():
    scores, candidates, targets, counts = make()
    fusion = TreeFusion.fit(scores, candidates, targets, counts, beta=0.3)
    tree = fusion.tree

    def leaf(*features):
        node = 0
        while tree.left[node] >= 0:
            below = np.float32(features[tree.features[node]]) <= tree.thresholds[node]
            node = tree.left[node] if below else tree.right[node]
        return tree.values[node]

    expected = np.empty(candidates.shape)
    for row, labels in enumerate(candidates):
        for column, label in enumerate(labels):
            dual, classifier = float(scores["dual"][row, column]), float(scores["classifier"][row, column])
            chance = leaf(dual, classifier, np.log(1 + counts[label]))
            expected[row, column] = 0.3 * (chance + dual) + classifier
    parts, rest = fusion.contributions(scores, candidates, counts)
    np.testing.assert_allclose(parts["dual"] + parts["classifier"] + rest, expected, atol=1e-12)
    order = np.argsort(-expected, axis=1, kind="stable")
    best = fusion.rank(scores, candidates, counts, k=4)
    np.testing.assert_array_equal(best.ids, np.take_along_axis(candidates, order, axis=1)[:, :4])
    assert (np.diff(best.scores, axis=1) <= 0).all()
    chances = fusion.probabilities(scores, candidates, counts)
    truth = targets.toarray()[np.arange(300)[:, None], candidates]
    assert abs(chances.mean() - truth.mean()) < 0.01
    tail = fusion.rank(scores, candidates, counts, k=4, inverse_propensity=1.0 + np.arange(LABELS), tail=1.0)
    assert tail.ids.mean() > best.ids.mean()


def test_the_tree_reads_scores_and_frequency():
    scores, candidates, targets, counts = make(queries=2_000)
    fusion = TreeFusion.fit(scores, candidates, targets, counts)
    assert set(fusion.tree.features) == {-1, 0, 1, 2}
    rare, common = (fusion.contributions(scores, candidates, np.full(LABELS, count))[1] for count in (0, 190))
    assert common.mean() > rare.mean()


def test_excluded_and_padded_cells_never_count():
    scores, candidates, targets, counts = make()
    rows = np.arange(len(candidates))
    exclude = sparse.csr_matrix((np.ones(len(rows)), (rows, candidates[:, 3])), shape=targets.shape)
    loud = {name: np.concatenate([score, np.full((len(score), 1), np.inf)], axis=1) for name, score in scores.items()}
    for score in loud.values():
        score[:, 3] = np.nan
    wide = np.concatenate([candidates, np.full((len(rows), 1), -1)], axis=1)
    kept = np.delete(np.arange(8), 3)
    less = {name: score[:, kept] for name, score in scores.items()}
    fusion = TreeFusion.fit(loud, wide, targets, counts, exclude=exclude)
    assert fusion == TreeFusion.fit(less, candidates[:, kept], targets, counts)
    best = fusion.rank(loud, wide, counts, 9, exclude=exclude)
    np.testing.assert_array_equal(best.ids[:, :7], fusion.rank(less, candidates[:, kept], counts, 7).ids)
    assert (best.ids[:, 7:] == -1).all()


def test_a_missing_score_counts_as_the_lowest():
    scores, candidates, targets, counts = make()
    fusion = TreeFusion.fit(scores, candidates, targets, counts)
    low = {**scores, "dual": np.full(candidates.shape, scores["dual"].min())}
    gone = {**scores, "dual": np.full(candidates.shape, -np.inf)}
    np.testing.assert_array_equal(
        fusion.probabilities(gone, candidates, counts), fusion.probabilities(low, candidates, counts)
    )


def test_to_json_and_back():
    scores, candidates, targets, counts = make()
    fusion = TreeFusion.fit(scores, candidates, targets, counts, beta=0.3)
    text = json.dumps(fusion.to_dict())
    assert read_fusion(json.loads(text)) == fusion
    plain = Fusion.fit(scores, candidates, targets, counts)
    assert read_fusion(json.loads(json.dumps(plain.to_dict()))) == plain


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"beta": 0}, "beta must be above 0"),
        ({"beta": float("nan")}, "beta must be 1? ?finite numbers"),
        ({"names": ["dual"]}, "at least 2 heads"),
        ({"names": ["dual", "dual"]}, "unique name"),
        ({"names": "dual"}, "list of head names"),
        ({"floors": [1]}, "floors must be 2 finite numbers"),
        ({"tree": {}}, "a decision tree must have"),
        ({"more": 1}, "a fusion must have"),
    ],
)
def test_damaged_documents_are_one_line(change, words):
    scores, candidates, targets, counts = make()
    values = TreeFusion.fit(scores, candidates, targets, counts).to_dict()
    with pytest.raises(DataError, match=words):
        read_fusion(values | change)


@pytest.mark.parametrize(("key", "value"), [("left", 0), ("left", 10**6), ("features", 3), ("right", -1)])
def test_a_tree_that_would_never_end_is_refused(key, value):
    scores, candidates, targets, counts = make()
    values = TreeFusion.fit(scores, candidates, targets, counts).to_dict()
    values["tree"][key][0] = value
    with pytest.raises(DataError, match="node 0 of the decision tree is damaged"):
        read_fusion(values)


def test_wrong_arguments_are_one_line():
    scores, candidates, targets, counts = make()
    with pytest.raises(DataError, match="at least two heads"):
        TreeFusion.fit({"dual": scores["dual"]}, candidates, targets, counts)
    with pytest.raises(SettingError, match="beta must be above 0"):
        TreeFusion.fit(scores, candidates, targets, counts, beta=0)
    with pytest.raises(DataError, match="no candidate is relevant"):
        TreeFusion.fit(scores, candidates, sparse.csr_matrix(targets.shape), counts)
    with pytest.raises(DataError, match=r"targets must lie in \[0, 1\]"):
        TreeFusion.fit(scores, candidates, targets * 2, counts)
    fusion = TreeFusion(
        ("a", "b"), (0.0, 0.0), 1.0, DecisionTree((-1,), (0.0,), (-1,), (-1,), (0.5,)), Calibration(1.0, 0.0)
    )
    with pytest.raises(DataError, match="this model fuses a, b"):
        fusion.rank(scores, candidates, counts, 1)
