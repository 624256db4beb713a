import numpy as np
import pytest

from megalabel.augment import Agreement, agreement, gandalf
from megalabel.data import Dataset

LABELS = ["a", "b", "c", "d"]


def make(rows):
    return Dataset.from_lists(rows, [("z", [0])], LABELS)


def test_counts_by_hand():
    # Text a: train says b, c; the label row of a says itself and, from x, b and d.
    data = make([("a", [1, 2]), ("x", [0, 1, 3]), ("y", [2])])
    counts = agreement(data, gandalf(data, known="ignore"))
    assert counts == Agreement(texts=1, targets=2, right=1)
    assert counts.share == 0.5


@pytest.mark.parametrize("options", [{}, {"max_targets": 2}, {"rows_kept": "labels"}, {"targets": "glas"}])
def test_against_a_plain_loop(options):
    rng = np.random.default_rng(0)
    texts = ["a", "b", "c", *(f"text {i}" for i in range(30))]
    data = make([(text, np.flatnonzero(rng.random(4) < 0.5).tolist()) for text in texts])
    more = gandalf(data, known="ignore", **options)
    targets = right = 0
    for row, (uid, text) in enumerate(zip(more.train.uids, more.train.texts, strict=True)):
        if uid not in data.train.uids and text in texts:
            truth = set(data.train.targets[texts.index(text)].indices)
            wanted = set(more.train.targets[row].indices) - {LABELS.index(text)}
            targets, right = targets + len(wanted), right + len(wanted & truth)
    assert agreement(data, more) == Agreement(3, targets, right)


def test_merged_labels_are_right():
    data = make([("a", [1, 2]), ("x", [0, 1, 3]), ("y", [2])])
    assert agreement(data, gandalf(data)) == Agreement(texts=1, targets=2, right=2)


def test_no_common_texts():
    data = make([("x", [0, 1]), ("y", [2, 3])])
    assert agreement(data, gandalf(data)) == Agreement(0, 0, 0)
    assert agreement(data, data).share == 0
