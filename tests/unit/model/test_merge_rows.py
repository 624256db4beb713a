"""New rows beside the training rows of a model."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy import sparse

from megalabel.data.dataset import Dataset, Labels
from megalabel.errors import DataError
from megalabel.model.merge_rows import merge_rows
from megalabel.model.train_rows import TrainRows

LABELS = ["red", "green", "blue"]


def state(removed=()):
    """What merging asks of the labels of a model."""
    counts = np.ones(3, dtype=np.int64)
    stats = SimpleNamespace(counts=counts, points=3, propensity=(0.55, 1.5), trained=None)
    return SimpleNamespace(labels=Labels(LABELS, LABELS), removed=np.array(removed, dtype=np.int64), stats=stats)


def train(**more):
    return TrainRows(["a", "b", "c"], sparse.csr_matrix(np.eye(3, dtype=np.float32)), **more)


def rows(*pairs, labels=LABELS):
    data = Dataset.from_lists([("x", [0])], list(pairs), labels)
    labels = Labels(labels, labels)
    return data.replace(train=data.train.rows(np.empty(0, dtype=np.int64)), labels=labels, test_only=True, points=0)


def found(merged):
    """The labels of every text."""
    names = [*LABELS, *merged.new.texts]
    split = merged.split
    cells = [split.targets[row].indices for row in range(len(split))]
    return {text: [names[label] for label in row] for text, row in zip(split.texts, cells, strict=True)}


def test_new_corrected_and_known_rows():
    merged = merge_rows(state(), train(), rows(("a", [1]), ("b", [1]), ("d", [0, 2])))
    assert found(merged) == {"a": ["green"], "b": ["green"], "c": ["blue"], "d": ["red", "blue"]}
    assert merged.fresh.tolist() == [3] and merged.corrected.tolist() == [0] and merged.unchanged == 1
    assert merged.lost.tolist() == [0] and merged.changed.tolist() == [0, 3]
    assert merged.notes == ["1 new text, 1 corrected, 1 known already"]


def test_the_last_of_equal_texts_counts():
    merged = merge_rows(state(), train(), rows(("d", [0]), ("a", [1]), ("d", [1]), ("a", [2])))
    assert found(merged) == {"a": ["blue"], "b": ["green"], "c": ["blue"], "d": ["green"]}
    assert merged.repeated == 2


def test_rows_without_labels():
    """A known text without a label is no longer trained on; a new one is left out."""
    merged = merge_rows(state(), train(held=np.array([0, 2])), rows(("a", []), ("d", []), ("e", [1])))
    assert found(merged) == {"b": ["green"], "c": ["blue"], "e": ["green"]}
    assert (merged.dropped, merged.bare) == (1, 1)
    assert merged.held.tolist() == [1] and merged.fresh.tolist() == [2]


def test_new_and_removed_labels():
    merged = merge_rows(state(removed=[0]), train(), rows(("d", [0, 3, 1]), labels=[*LABELS, "pink"]))
    assert found(merged) == {"b": ["green"], "c": ["blue"], "d": ["green", "pink"]}
    assert merged.new.uids == ["pink"] and "1 new label: 'pink'" in merged.notes


def test_filter_pairs_stay_unless_a_correction_names_them():
    merged = merge_rows(state(), train(filter=np.array([[0, 1], [2, 0]])), rows(("a", [1])))
    assert merged.split.filter.tolist() == [[2, 0]]


def test_nothing_new():
    with pytest.raises(DataError, match="nothing new, all rows are known"):
        merge_rows(state(), train(), rows(("a", [0]), ("b", [1])))


def test_rows_of_a_data_set_are_its_train_rows():
    data = Dataset.from_lists([("d", [1])], [("never", [0])], LABELS).replace(labels=Labels(LABELS, LABELS))
    merged = merge_rows(state(), train(), data)
    assert "never" not in merged.split.texts and merged.fresh.tolist() == [3]
