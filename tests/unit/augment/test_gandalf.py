import subprocess
import sys
import warnings

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import sparse

from megalabel.augment import gandalf
from megalabel.data import Dataset, Labels, Split, hold_out
from megalabel.errors import DataError, SettingError

ROWS = [("ab", [0, 1]), ("ac", [0, 2]), ("ab again", [0, 1]), ("cd", [2, 3]), ("a", [0])]
GOLDEN = [[1, 0.5, 0.25, 0], [1, 1, 0, 0], [0.5, 0, 1, 0.5], [0, 0, 1, 1]]
SYMMETRIC = np.array([[1, 0.75, 0.375, 0], [0.75, 1, 0, 0], [0.375, 0, 1, 0.75], [0, 0, 0.75, 1]])


@pytest.fixture
def data():
    return Dataset.from_lists(ROWS, [("a", [0])], ["A", "B", "C", "D"])


def added(more, data):
    return more.train.targets[len(data.train) :].toarray()


def random_set(points, labels, seed, density=0.2):
    rng = np.random.default_rng(seed)
    truth = rng.random((points, labels)) < density
    truth[0, 0] = True
    rows = [(f"text {i}", np.flatnonzero(row).tolist()) for i, row in enumerate(truth)]
    return Dataset.from_lists(rows, [("t", [0])], [f"label {i}" for i in range(labels)], val=[("v", [0])])


def test_golden_targets(data):
    assert added(gandalf(data), data).tolist() == GOLDEN
    assert added(gandalf(data, delta=0), data).tolist() == GOLDEN


def test_the_threshold_is_strict(data):
    kept = added(gandalf(data, delta=0.25), data)
    assert kept.tolist() == [[1, 0.5, 0, 0], *GOLDEN[1:]]
    assert added(gandalf(data, delta=0.25, below_delta="mask"), data).tolist() == kept.tolist()


def test_pairs_below_delta_can_be_masked(data):
    more = gandalf(data, delta=0.25, below_delta="mask")
    assert more.train.filter.tolist() == [[5, 2]]
    assert len(gandalf(data, delta=0.25).train.filter) == 0


@pytest.mark.parametrize("most", [1, 3, 7])
def test_max_targets_keeps_the_largest_targets(most):
    data = random_set(60, 20, seed=3)
    every, few = (added(gandalf(data, delta=0, max_targets=limit, seed=1), data) for limit in (None, most))
    assert np.array_equal((few > 0).sum(axis=1), np.minimum((every > 0).sum(axis=1), most))
    assert np.all(few.diagonal() == 1)
    assert np.all((few == every) | (few == 0))
    left = np.where(few == 0, every, 0).max(axis=1)  # the largest that was cut
    kept = np.where((few > 0) & ~np.eye(20, dtype=bool), few, np.inf).min(axis=1)
    assert np.all(left <= kept)
    again = added(gandalf(data, delta=0, max_targets=most, seed=1), data)
    assert np.array_equal(few, again)


def test_ties_at_the_limit_are_broken_at_random():
    data = Dataset.from_lists([("all", list(range(40)))], [("t", [0])], [f"label {i}" for i in range(40)])
    kept = added(gandalf(data, max_targets=10), data) > 0
    assert np.all(kept.sum(axis=1) == 10)
    assert kept.sum(axis=0).max() < 25  # not the same ten for every label


def test_targets_over_the_limit_can_be_masked(data):
    more = gandalf(data, max_targets=2, below_delta="mask")
    assert added(more, data)[[0, 1, 3]].tolist() == [[1, 0.5, 0, 0], GOLDEN[1], GOLDEN[3]]
    assert {row for row, _ in more.train.filter.tolist()} == {5, 7}


def test_self_annotation_is_the_identity(data):
    assert added(gandalf(data, targets="self"), data).tolist() == np.eye(4).tolist()
    masked = gandalf(data, targets="self", below_delta="mask")
    pairs = sorted((row - 5, label) for row, label in masked.train.filter.tolist())
    assert pairs == [(0, 1), (0, 2), (1, 0), (2, 0), (2, 3), (3, 2)]


@pytest.mark.parametrize("delta", [0.0, 0.4])
def test_glas_targets_are_sigmoids_of_the_symmetric_graph(data, delta):
    expected = np.where(delta < SYMMETRIC, 1 / (1 + np.exp(-SYMMETRIC)), 0)
    np.testing.assert_allclose(added(gandalf(data, targets="glas", delta=delta), data), expected, rtol=1e-6)


def test_label_texts_alone(data):
    more = gandalf(data, rows_kept="labels")
    assert more.train.texts == ["A", "B", "C", "D"]
    assert more.train.targets.toarray().tolist() == GOLDEN


def test_rows_train_keeps_the_number_of_rows(data):
    more = gandalf(data, rows="train")
    assert len(more.train) == 5
    whole = gandalf(data).train
    places = [list(whole.uids).index(uid) for uid in more.train.uids]
    assert places == sorted(set(places))
    assert more.train.targets.toarray().tolist() == whole.targets[places].toarray().tolist()
    drawn = {tuple(gandalf(data, rows=3, seed=seed).train.uids) for seed in range(20)}
    assert len(drawn) > 10
    assert {uid for uids in drawn for uid in uids} == set(whole.uids)


def test_a_given_graph(data):
    graph = sparse.csr_matrix(np.array([[0.3, 0.2, 0, 0], [0, 0, 0.9, 0.1], [0, 0, 1, 0], [0, 0, 0, 0]]))
    before = graph.toarray()
    targets = added(gandalf(data, graph=graph), data)
    expected = [[1, 0.2, 0, 0], [0, 1, 0.9, 0], [0, 0, 1, 0], [0, 0, 0, 1]]
    np.testing.assert_allclose(targets, expected, rtol=1e-6)
    assert graph.toarray().tolist() == before.tolist()


def test_walks_have_the_same_shape():
    data = random_set(60, 12, 0)
    targets = added(gandalf(data, graph="walk", seed=1), data)
    assert targets.diagonal().tolist() == [1.0] * 12
    together = (data.train.targets.T @ data.train.targets).toarray() > 0
    two_hops = (together.astype(int) @ together) > 0
    assert not targets[~two_hops & ~np.eye(12, dtype=bool)].any()
    assert targets.tolist() == added(gandalf(data, graph="walk", seed=1), data).tolist()


@given(
    points=st.integers(1, 30),
    labels=st.integers(1, 20),
    seed=st.integers(0, 999),
    delta=st.floats(0, 0.95),
    targets=st.sampled_from(["conditional", "self", "glas"]),
    below_delta=st.sampled_from(["negative", "mask"]),
    share=st.floats(0.05, 1.0),
    sample=st.sampled_from(["uniform", "tail"]),
)
def test_properties(points, labels, seed, delta, targets, below_delta, share, sample):
    data = random_set(points, labels, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        options = {"targets": targets, "below_delta": below_delta, "share": share, "sample": sample, "seed": seed}
        more = gandalf(data, delta=delta, max_targets=None, **options)
    old, new = data.train, more.train
    number = max(1, round(share * labels))
    assert len(new) == len(old) + number
    assert new.texts[: len(old)] == old.texts
    assert all(a is b for a, b in zip(new.texts, [*old.texts], strict=False))
    assert (new.targets[: len(old)] != old.targets).nnz == 0
    assert len(set(new.uids)) == len(new)
    assert new.targets.dtype == np.float32
    assert more.val is data.val
    assert more.test is data.test
    assert more.counts is data.counts
    assert more.points == data.points
    picked = [data.labels.uids.index(uid.removeprefix("gandalf:")) for uid in new.uids[len(old) :]]
    assert picked == sorted(set(picked))
    assert all(new.texts[len(old) + n] is data.labels.texts[label] for n, label in enumerate(picked))
    rows = new.targets[len(old) :].toarray()
    own = rows[np.arange(number), picked]
    np.testing.assert_allclose(own, 1 / (1 + np.exp(-1)) if targets == "glas" else 1.0, rtol=1e-6)
    truth = (old.targets.toarray() > 0).astype(float)
    pairs = truth.T @ truth
    c = pairs / np.maximum(np.diag(pairs), 1)[:, None]
    np.fill_diagonal(c, 1)
    source = (c + c.T) / 2 if targets == "glas" else c
    close = np.abs(source - delta) < 1e-6
    wanted = np.eye(labels, dtype=bool) if targets == "self" else source > delta
    assume(not (close & (source > 0)).any() or targets == "self")
    assert ((rows > 0) == wanted[picked]).all()
    if targets == "conditional":
        np.testing.assert_allclose(rows, np.where(wanted, c, 0)[picked], rtol=1e-6)
    hidden = new.excluded()[len(old) :].toarray() > 0
    assert (hidden == (((source > 0) & ~wanted)[picked] if below_delta == "mask" else False)).all()


def test_filtered_pairs_are_not_counted(data):
    hidden = data.replace(train=Split(data.train.texts, data.train.targets, data.train.uids, np.array([[1, 2]])))
    more = gandalf(hidden)
    assert more.train.filter.tolist() == [[1, 2]]
    assert more.train.targets[5].toarray().tolist() == [[1, 0.5, 0, 0]]
    assert more.train.targets[7].toarray().tolist() == [[0, 0, 1, 1]]


def test_a_label_without_a_point_has_itself(data):
    more = data.replace(
        labels=Labels(["A", "B", "C", "D", "E"], list("abcde")),
        train=Split(data.train.texts, sparse.csr_matrix((data.train.targets.data, data.train.targets.indices,
                    data.train.targets.indptr), shape=(5, 5)), data.train.uids),
        test=Split(["x"], sparse.csr_matrix(np.array([[1.0, 0, 0, 0, 0]], dtype=np.float32)), ["x"]),
    )  # fmt: skip
    assert added(gandalf(more), more)[4].tolist() == [0, 0, 0, 0, 1]


def test_rare_labels_come_first():
    rows = [(f"t{i}", [0]) for i in range(40)] + [(f"u{i}", [1 + i % 2]) for i in range(40)]
    rows += [(f"v{i}", [3 + i % 20]) for i in range(40)]
    data = Dataset.from_lists(rows, [("t", [0])], [f"label {i}" for i in range(23)])
    rare = [
        uid.removeprefix("gandalf:lbl-")
        for uid in gandalf(data, targets="self", share=0.5, sample="tail").train.uids[120:]
    ]
    assert len(rare) == 12
    assert min(map(int, rare)) >= 3
    most = gandalf(data, targets="self", share=22 / 23, sample="tail").train.uids[120:]
    assert "gandalf:lbl-0" not in most
    even = gandalf(data, targets="self", share=0.5, seed=3).train.uids[120:]
    assert len(even) == 12
    assert min(int(uid.removeprefix("gandalf:lbl-")) for uid in even) < 3


def test_held_out_rows_leave_no_trace():
    data = random_set(60, 12, 3).replace(val=None)
    held = hold_out(data, share=0.3, seed=2)
    blind = held.replace(val=held.val.rows(np.array([0])))
    assert (gandalf(held).train.targets != gandalf(blind).train.targets).nnz == 0
    assert gandalf(held).refit() is data


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"delta": 1.0}, "delta"),
        ({"max_targets": 0}, "max_targets"),
        ({"delta": -0.1}, "delta"),
        ({"delta": float("nan")}, "delta"),
        ({"targets": "conditionl"}, "'conditional'"),
        ({"graph": "count"}, "'counts'"),
        ({"below_delta": "masked"}, "'mask'"),
        ({"sample": "tails"}, "'tail'"),
        ({"rows_kept": "label"}, "'labels'"),
        ({"share": 0}, "share"),
        ({"share": 1.5}, "share"),
        ({"rows": 10}, "9 to draw from"),
        ({"rows": 0}, "rows"),
    ],
)
def test_wrong_settings_give_one_line(data, options, words):
    with pytest.raises(SettingError) as error:
        gandalf(data, **options)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("graph", "words"),
    [
        (sparse.identity(3, format="csr"), "3 x 3 but the set has 4 labels"),
        (sparse.csr_matrix((4, 4)), "no edges"),
        (sparse.csr_matrix(np.eye(4) * 3), r"\(0, 1\]"),
        (sparse.csr_matrix(-np.eye(4)), r"\(0, 1\]"),
    ],
)
def test_wrong_graphs(data, graph, words):
    with pytest.raises(DataError, match=words):
        gandalf(data, graph=graph)


def test_labels_without_text(data):
    bare = data.replace(labels=Labels(["A", "", " ", "D"], list("abcd")))
    with pytest.raises(DataError, match=r"2 of 4 labels have no text, the first is 'b'"):
        gandalf(bare)


def test_applying_it_twice_is_refused(data):
    with pytest.raises(DataError, match="once"):
        gandalf(gandalf(data))


def test_labels_that_never_co_occur_are_reported():
    data = Dataset.from_lists([("a", [0]), ("b", [1])], [("a", [0])], ["A", "B"])
    with pytest.warns(UserWarning, match="itself as its only target"):
        more = gandalf(data)
    assert more.train.targets[2:].toarray().tolist() == np.eye(2).tolist()


def test_the_package_loads_no_torch():
    code = "import sys, megalabel.augment; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "False"
