"""Train targets mixed with a teacher's probabilities, and label texts as rows."""

import numpy as np
import pytest
from scipy import sparse

from megalabel import Dataset
from megalabel.augment.soften import soften, texts_to_ask
from megalabel.data.dataset import Labels, Split
from megalabel.errors import DataError, SettingError


def answers_of(data, probability):
    """Answers for every text: ``probability`` [L] for each."""
    texts = texts_to_ask(data.refit())
    rows = np.tile(np.asarray(probability, dtype=np.float32), (len(texts), 1))
    return {text: row for row, text in enumerate(texts)}, sparse.csr_matrix(rows)


@pytest.fixture
def data():
    train = [("red shoe", [0]), ("blue hat", [1]), ("hat", [1, 2])]
    return Dataset.from_lists(train, [("green", [2])], ["shoe", "hat", "coat"])


def test_targets_are_mixed_and_label_texts_are_rows(data):
    soft = soften(data, *answers_of(data, [0.5, 0, 0.25]), weight=0.4)
    assert soft.train.texts == ["red shoe", "blue hat", "hat", "shoe", "coat"]  # hat is a train text already
    expected = [[0.8, 0, 0.1], [0.2, 0.6, 0.1], [0.2, 0.6, 0.7], [1, 0, 0.25], [0.5, 0, 1]]
    np.testing.assert_allclose(soft.train.targets.toarray(), expected, atol=1e-6)
    assert soft.counts.tolist() == data.counts.tolist() and soft.test is data.test


def test_weight_0_leaves_the_true_labels_and_1_the_teacher(data):
    places, answers = answers_of(data, [0.5, 0, 0.25])
    plain = soften(data, places, answers, weight=0, label_texts=False)
    assert (plain.train.targets != data.train.targets).nnz == 0 and len(plain.train) == 3
    alone = soften(data, places, answers, weight=1, label_texts=False)
    assert alone.train.targets.toarray().tolist() == [[0.5, 0, 0.25]] * 3


def test_a_small_probability_is_none(data):
    soft = soften(data, *answers_of(data, [0.5, 0, 0.25]), least=0.3)
    assert soft.train.targets[0].toarray().tolist() == [[0.75, 0, 0]]
    assert soft.train.targets[4].toarray().tolist() == [[0.5, 0, 1]] and soft.train.targets.data.all()


def test_filter_pairs_take_no_probability(data):
    filtered = data.replace(train=data.train.filtering(np.array([[0, 2]])))
    soft = soften(filtered, *answers_of(filtered, [0.5, 0, 0.25]))
    assert soft.train.targets[0].toarray().tolist() == [[0.75, 0, 0]]
    assert soft.train.filter.tolist() == [[0, 2]]


def test_nothing_is_said_of_validation_rows():
    """Points and labels are the same items: the teacher knows the reverse of every held-out pair."""
    uids = ["a", "b", "c"]
    texts = ["red shoe", "blue hat", "green coat"]
    relevant = sparse.csr_matrix(np.array([[0, 1, 0], [0, 0, 1]], dtype=np.float32))
    train = Split(texts[:2], relevant, uids[:2])
    val = Split(texts[2:], sparse.csr_matrix(np.array([[1, 0, 0]], dtype=np.float32)), uids[2:])
    data = Dataset(train, train, Labels(texts, uids), val)
    soft = soften(data, *answers_of(data, [0.5, 0.5, 0.5]))
    assert "green coat" not in soft.train.texts
    assert soft.train.targets[:, 2].toarray().ravel().tolist() == [0, 0.5]  # what was true, halved; no probability
    refit = soften(data.refit(), *answers_of(data, [0.5, 0.5, 0.5]))
    assert refit.train.targets[:, 2].toarray().ravel().tolist() == [0.25, 0.75, 0.25]


def test_mistakes_are_one_line(data):
    places, answers = answers_of(data, [0.5, 0, 0.25])
    with pytest.raises(SettingError, match="weight must lie in 0 to 1, not 2"):
        soften(data, places, answers, weight=2)
    with pytest.raises(DataError, match="the teacher answers with 2 labels, data has 3"):
        soften(data, places, answers[:, :2])
