import numpy as np
import pytest

from megalabel.augment import label_mixup
from megalabel.data import Dataset, Labels
from megalabel.errors import DataError


def test_all_labels_are_equally_likely():
    data = Dataset.from_lists([(f"t{i}", [0]) for i in range(3000)], [("t", [0])], [f"z{i}" for i in range(6)])
    texts = label_mixup(data, seed=4).train.texts[3000:]
    counts = np.bincount([int(text.split("z")[1]) for text in texts], minlength=6)
    assert (abs(counts - 500) < 100).all()


def test_a_label_of_the_row_itself_keeps_its_full_target():
    data = Dataset.from_lists([("a b", [0])], [("a", [0])], ["A"])
    assert label_mixup(data).train.targets.toarray().tolist() == [[1.0], [1.0]]


def test_labels_without_text():
    data = Dataset.from_lists([("a", [0]), ("b", [1])], [("a", [0])], ["A", "B"])
    with pytest.raises(DataError, match="1 of 2 labels have no text"):
        label_mixup(data.replace(labels=Labels(["a", ""], ["a", "b"])))


def test_applying_it_twice_is_refused():
    data = Dataset.from_lists([("a", [0]), ("b", [1])], [("a", [0])], ["A", "B"])
    with pytest.raises(DataError, match="once"):
        label_mixup(label_mixup(data))
