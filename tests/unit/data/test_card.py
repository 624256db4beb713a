import json

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from megalabel.data.builtin import build
from megalabel.data.card import card
from megalabel.data.dataset import Dataset, Labels, Split
from megalabel.data.make_filters import make_filters


def split(uids, rows, labels=4):
    dense = np.zeros((len(rows), labels), dtype=np.float32)
    for row, ids in enumerate(rows):
        dense[row, ids] = 1
    return Split([f"the item {uid}" for uid in uids], csr_matrix(dense), uids)


@pytest.fixture
def symmetric():
    """Four labels a, b, c, d; (a, b) and (b, a) in train, (c, a) in val, (d, a) in test with (a, d) in train."""
    labels = Labels(["the item a", "the item b", "the item c", "the item"], ["a", "b", "c", "d"])
    train, val, test = split(["a", "b"], [[1, 3], [0]]), split(["c"], [[0]]), split(["d", "e"], [[0], [1, 0]])
    return Dataset(train=train, val=val, test=test, labels=labels, name="toy", licence="CC0", propensity=(0.5, 0.4))


def test_by_hand(symmetric):
    summary = card(symmetric)
    assert summary.points == {"train": 2, "val": 1, "test": 2}
    assert summary.labels == 4
    assert summary.labels_per_point == {"train": 1.5, "val": 1.0, "test": 1.5}
    assert summary.points_per_label == 0.75
    assert summary.words_per_point == 3.0
    assert summary.words_per_label == 2.75
    assert summary.frequency_quantiles["0%"] == 0
    assert summary.frequency_quantiles["50%"] == 1
    assert summary.frequency_quantiles["100%"] == 1
    assert summary.label_shares == {"head": 0, "torso": 0, "tail": 1}
    assert summary.pair_shares == {"head": 0, "torso": 0, "tail": 1}
    assert summary.labels_without_train == 1
    assert summary.propensity == (0.5, 0.4)
    assert summary.reverse_shares == {"train": pytest.approx(2 / 3), "val": 0, "test": pytest.approx(1 / 3)}
    assert summary.filter_pairs == {"train": 0, "val": 0, "test": 0}
    assert card(make_filters(symmetric)).filter_pairs == {"train": 2, "val": 1, "test": 2}


def test_bands():
    counts = [101, 100, 10, 9, 0]
    rows = [[label for label, count in enumerate(counts) if row < count] for row in range(101)]
    points = split([f"p{i}" for i in range(101)], rows, labels=5)
    summary = card(Dataset(train=points, test=points, labels=Labels(list("abcde"), list("abcde"))))
    assert summary.label_shares == {"head": 0.2, "torso": 0.4, "tail": 0.4}
    assert summary.pair_shares == {"head": 101 / 220, "torso": 110 / 220, "tail": 9 / 220}
    assert summary.labels_without_train == 1
    assert summary.reverse_shares is None


def test_json_and_table(symmetric):
    summary = card(symmetric)
    assert json.loads(json.dumps(summary.to_dict()))["propensity"] == [0.5, 0.4]
    table = summary.table()
    assert "points                    train 2, val 1, test 2" in table
    assert "labels                    4 (1 without a train point)" in table
    assert "A 0.5, B 0.4" in table
    assert "train 66.7%, val 0.0%, test 33.3%" in table
    assert len({line.index("  ") > 0 for line in table.splitlines()}) == 1
    assert "points and labels are different things" in card(build("synthetic:points=20,labels=8")).table()


def test_counts_are_those_of_train_alone(symmetric):
    assert symmetric.counts.tolist() == [2, 1, 0, 1]  # train + val
    assert card(symmetric).frequency_quantiles["100%"] == 1
