import numpy as np
import pytest
from scipy import sparse

from megalabel.data import Dataset, Labels, Split
from megalabel.data.make_filters import make_filters
from megalabel.errors import DataError


def csr(rows):
    return sparse.csr_matrix(np.array(rows, dtype=np.float32))


def test_own_item_and_reciprocal_pairs():
    labels = Labels(["a", "b", "c"], ["a", "b", "c"])
    train = Split(["a", "b"], csr([[1, 0, 1], [1, 0, 0]]), ["a", "b"])
    test = Split(["c", "new"], csr([[1, 1, 1], [0, 1, 0]]), ["c", "new"])
    data = make_filters(Dataset(train=train, test=test, labels=labels))
    assert data.train.filter.tolist() == [[0, 0], [1, 1]]
    assert data.train.targets.toarray().tolist() == [[0, 0, 1], [1, 0, 0]]  # a is no label of itself
    assert data.test.filter.tolist() == [[0, 0], [0, 2]]  # a has label c in train; c itself
    assert data.test.targets.toarray().tolist() == [[0, 1, 0], [0, 1, 0]]


def test_sets_without_common_items_are_refused():
    with pytest.raises(DataError, match="nothing to filter"):
        make_filters(Dataset.from_lists([("a", [0])], [("b", [0])], ["x"]))
