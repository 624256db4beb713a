import numpy as np
import pytest
from scipy import sparse

from megalabel.data import Dataset, Labels, Split
from megalabel.errors import DataError, MegalabelError


def small(**changes):
    arguments = {"train": [("a", [0, 1]), ("b", [1])], "test": [("c", [2])], "labels": ["x", "y", "z"]} | changes
    return Dataset.from_lists(**arguments)


def test_counts_come_from_train_and_val_and_stay():
    data = small(val=[("d", [0])])
    assert data.counts.tolist() == [2, 2, 0]
    assert data.points == 3
    thinner = data.replace(train=data.train.rows(np.array([1])))
    assert thinner.counts.tolist() == [2, 2, 0]
    assert thinner.points == 3


def test_refit_puts_val_behind_train():
    data = small(val=[("d", [0])]).refit()
    assert data.val is None
    assert list(data.train.texts) == ["a", "b", "d"]
    assert data.train.targets.toarray().tolist() == [[1, 1, 0], [0, 1, 0], [1, 0, 0]]


def test_rows_keep_their_filter_pairs():
    split = Split(
        ["a", "b", "c"], sparse.csr_matrix(np.eye(3, dtype=np.float32)), ["1", "2", "3"], np.array([[0, 1], [2, 0]])
    )
    kept = split.rows(np.array([2, 1]))
    assert kept.filter.tolist() == [[0, 0]]
    both = kept + split
    assert both.filter.tolist() == [[0, 0], [2, 1], [4, 0]]
    assert both.excluded().nonzero()[0].tolist() == [0, 2, 4]


def test_without_and_filtering():
    split = Split(["a"], sparse.csr_matrix(np.array([[0.5, 1.0]], dtype=np.float32)), ["1"])
    assert split.without(np.array([[0, 1]])).targets.toarray().tolist() == [[0.5, 0.0]]
    filtered = split.filtering(np.array([[0, 0], [0, 0]]))
    assert filtered.targets.toarray().tolist() == [[0.0, 1.0]]
    assert filtered.filter.tolist() == [[0, 0]]


@pytest.mark.parametrize(
    "changes",
    [
        {"train": []},
        {"test": []},
        {"train": [("a", []), ("b", [])]},
        {"train": [("a", [3])]},
        {"train": [("a", [-1])]},
    ],
)
def test_impossible_sets_are_refused(changes):
    with pytest.raises(DataError):
        small(**changes)


def test_parts_that_disagree_are_refused():
    matrix = sparse.csr_matrix(np.eye(2, dtype=np.float32))
    labels = Labels(["x", "y"], ["0", "1"])
    good = Split(["a", "b"], matrix, ["1", "2"])
    for bad in (
        Split(["a"], matrix, ["1"]),
        Split(["a", "b"], matrix, ["1"]),
        Split(["a", "b"], sparse.csr_matrix(np.ones((2, 3), dtype=np.float32)), ["1", "2"]),
        Split(["a", "b"], matrix * 2, ["1", "2"]),
        Split(["a", "b"], matrix * np.nan, ["1", "2"]),
        Split(["a", "b"], matrix, ["1", "2"], np.array([[2, 0]])),
    ):
        with pytest.raises(MegalabelError):
            Dataset(train=good, test=bad, labels=labels)


def test_an_unknown_split_lists_the_valid_ones():
    with pytest.raises(DataError, match="train, test"):
        small().split("val")
