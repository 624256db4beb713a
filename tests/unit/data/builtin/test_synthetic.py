import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from megalabel.data.builtin import build
from megalabel.data.builtin.synthetic import Words
from megalabel.errors import SettingError


def labels_by_word(data):
    return {word: label for label, text in enumerate(data.labels.texts) for word in text.split()}


def named(data, text):
    """Return the labels whose words stand in the text."""
    known = labels_by_word(data)
    return sorted(known[word] for word in text.split() if word in known)


@st.composite
def sizes(draw):
    labels = draw(st.integers(1, 40))
    return draw(st.integers(2, 60)), labels, draw(st.integers(1, labels)), draw(st.integers(0, 3))


@given(sizes=sizes(), kind=st.sampled_from(["zipf", "easy-positive", "random-pairs"]))
@hypothesis_settings(max_examples=60)
def test_any_size(sizes, kind):
    points, labels, each, seed = sizes
    data = build(f"synthetic:points={points},labels={labels},labels_per_point={each},seed={seed},kind={kind}")
    tests = max(1, round(points / 5))
    trains = points - tests
    assert len(data.labels) == labels
    assert len(data.train) == trains
    assert len(data.test) == (min(tests, trains) if kind == "random-pairs" else tests)
    for split in data.splits.values():
        assert np.all(np.diff(split.targets.indptr) == each)
        assert split.targets.has_canonical_format
        assert split.targets.dtype == np.float32
    if len(data.train) * each >= labels:
        assert data.counts.min() >= 1
    else:
        assert data.counts.max() == 1
    assert len(set(data.labels.texts)) == labels


def test_zipf_can_be_read_off_the_text():
    data = build("synthetic:points=500,labels=80,labels_per_point=4,seed=1")
    for split in data.splits.values():
        for row, text in enumerate(split.texts):
            assert named(data, text) == split.targets[row].indices.tolist()


def test_zipf_frequencies_fall():
    counts = np.sort(build("synthetic:points=5000,labels=1000").counts)[::-1]
    assert counts[0] > 5 * counts[500]
    assert counts[100] > 1.5 * counts[500]
    assert counts[0] < 1_000  # no label is in nearly every point


def test_one_easy_positive():
    data = build("synthetic:points=200,labels=50,kind=easy-positive")
    for row, text in enumerate(data.train.texts):
        easy = named(data, text)
        truth = data.train.targets[row].indices.tolist()
        assert len(truth) == 5
        assert len(easy) == 1
        assert easy[0] in truth
    assert len(set(data.train.texts)) == len(data.train)


def test_random_pairs_can_only_be_memorised():
    data = build("synthetic:points=200,labels=50,kind=random-pairs")
    assert all(named(data, text) == [] for text in data.train.texts)
    place = {uid: row for row, uid in enumerate(data.train.uids)}
    for row, uid in enumerate(data.test.uids):
        assert data.test.texts[row] == data.train.texts[place[uid]]
        assert (data.test.targets[row] != data.train.targets[place[uid]]).nnz == 0


def test_seeds_and_kinds_differ(fingerprint):
    specs = ["", "seed=1,", "kind=easy-positive,", "kind=random-pairs,", "labels_per_point=4,"]
    prints = [fingerprint(build(f"synthetic:{spec}points=100,labels=20")) for spec in specs]
    assert len(set(prints)) == len(specs)
    assert prints[0] == fingerprint(build("synthetic:points=100,labels=20"))


def test_more_labels_per_point_than_labels():
    with pytest.raises(SettingError, match="labels_per_point=9 is more than labels=8; ask for more labels"):
        build("synthetic:labels=8,labels_per_point=9")


@pytest.mark.parametrize("size", [10, 1_000, 1_000_000, 1_000_001])
def test_every_number_has_a_unique_word(size):
    numbers = np.unique(np.r_[np.arange(min(size, 50_000)), np.linspace(0, size - 1, 5_000, dtype=np.int64)])
    words = Words(size).join(numbers[:, None])
    assert len(set(words)) == len(numbers)
    assert all(word.isalpha() and word.islower() for word in words)


def test_largest_vocabulary_does_not_overflow():
    last = np.arange(200_000_000 - 1_000, 200_000_000)
    assert len(set(Words(200_000_000).join(last[:, None]))) == 1_000


def test_rows_join_with_spaces():
    words = Words(100)
    assert words.join(np.array([[3, 4]])) == [" ".join(words.join(np.array([[3], [4]])))]
    assert words.join(np.empty((2, 0), dtype=np.int64)) == ["", ""]
