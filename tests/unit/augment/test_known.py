import numpy as np
import pytest

from megalabel.augment import gandalf
from megalabel.augment.calibration import Calibration
from megalabel.augment.known import KnownTexts
from megalabel.data import Dataset, Split
from megalabel.errors import SettingError

NAMES = [f"label {number}" for number in range(12)]


def make(seed=0, points=60, shared=8, density=0.25, soft=False):
    """A set whose first texts are those of labels, one of them twice."""
    rng = np.random.default_rng(seed)
    truth = rng.random((points, 12)) < density
    truth[1] = False  # of a label text that is a train text without labels
    truth[6, 9] = True
    texts = [*NAMES[:shared], NAMES[0], *(f"text {number}" for number in range(points - shared - 1))]
    data = Dataset.from_lists([(text, np.flatnonzero(row)) for text, row in zip(texts, truth, strict=True)],
                              [("t", [0])], NAMES)  # fmt: skip
    targets = data.train.targets.copy()
    if soft:
        targets.data = rng.uniform(0.2, 1.0, targets.nnz).astype(np.float32)
    pairs = np.array([(row, row) for row in range(shared)] + [(2, 5), (3, 7), (20, 4)])
    return data.replace(train=Split(data.train.texts, targets, data.train.uids, pairs))


def train_labels(data, label):
    """The labels of all train rows with a label's text, of several rows the largest value, without filter pairs."""
    hidden = {(row, other) for row, other in data.train.filter.tolist()}
    found = {}
    for row, text in enumerate(data.train.texts):
        for other, value in enumerate(data.train.targets[row].toarray()[0].tolist()):
            if text == data.labels.texts[label] and value and (row, other) not in hidden:
                found[other] = max(value, found.get(other, 0.0))
    return found


def label_rows(more, data):
    return more.train.targets[len(data.train) :].toarray()


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("targets", ["conditional", "glas", "calibrated"])
def test_known_texts_have_their_labels_and_themselves(soft, targets):
    data = make(soft=soft)
    merged, ignored = (label_rows(gandalf(data, targets=targets, known=each), data) for each in ("merge", "ignore"))
    known = [label for label in range(12) if train_labels(data, label)]
    assert known == [0, 2, 3, 4, 5, 6, 7]
    assert KnownTexts.find(data).ids.tolist() == known
    for label in range(12):
        expected = ignored[label]
        if label in known:
            expected = np.zeros(12, dtype=np.float32)
            expected[list(train_labels(data, label))] = list(train_labels(data, label).values())
            expected[label] = 1
        assert merged[label].tolist() == expected.tolist()


def test_known_labels_are_not_limited():
    data = make(density=0.6)
    rows = label_rows(gandalf(data, max_targets=2), data)
    assert ((rows > 0).sum(axis=1)[8:] == 2).all()
    assert (rows > 0).sum(axis=1)[0] > 4


@pytest.mark.parametrize("below_delta", ["negative", "mask"])
def test_filter_pairs_of_known_texts_stay(below_delta):
    data = make()
    more = gandalf(data, below_delta=below_delta, delta=0.4)
    hidden = {(row - 60, label) for row, label in more.train.filter.tolist() if row >= 60}
    assert {(row, label) for row, label in hidden if row in (2, 3)} == {(2, 5), (3, 7)}
    assert not any(row == label for row, label in hidden)
    assert any(row in (1, 8, 9, 10, 11) for row, _ in hidden) == (below_delta == "mask")
    assert len(gandalf(data, known="ignore").train.filter) == len(data.train.filter)


def test_no_known_label_is_a_negative():
    data = make(points=200)
    for targets in ("conditional", "glas", "calibrated"):
        rows = label_rows(gandalf(data, targets=targets), data)
        for label in range(12):
            assert all(rows[label, other] > 0 for other in train_labels(data, label))


def slow_calibrated(data, delta, known):
    """The formula, pair by pair."""
    truth = data.train.without(data.train.filter).targets.toarray() > 0
    for row, text in enumerate(data.train.texts):
        if text in NAMES:
            truth[row, NAMES.index(text)] = False
    points = truth.sum(axis=0)
    c = np.zeros((12, 12), dtype=np.float32)
    for j in range(12):
        for i in range(12):
            c[j, i] = (truth[:, i] & truth[:, j]).sum() / points[j]
    pairs = [(j, i) for j in known for i in range(12) if i != j and c[j, i] > delta]
    labels = {j: train_labels(data, j) for j in known}
    curve = Calibration.fit(
        np.array([c[j, i] for j, i in pairs]),
        np.array([points[j] for j, _ in pairs]),
        np.array([i in labels[j] for j, i in pairs]),
    )
    expected = np.eye(12)
    for j in range(12):
        for i in range(12):
            chance = curve(c[j, i : i + 1], points[j : j + 1])[0]
            if i != j and c[j, i] > delta and chance > delta:
                expected[j, i] = chance
    return expected


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("delta", [0.0, 0.15, 0.3])
def test_calibrated_targets(delta, own):
    data = make(points=90)
    if own:  # train rows of a label's text with that label: they must not count as its points
        targets = data.train.targets.tolil()
        for row in range(0, 8, 2):
            targets[row, row] = 1
        data = data.replace(train=Split(data.train.texts, targets.tocsr(), data.train.uids))
    rows = label_rows(gandalf(data, targets="calibrated", known="ignore", delta=delta, max_targets=None), data)
    known = KnownTexts.find(data).ids.tolist()
    np.testing.assert_allclose(rows, slow_calibrated(data, delta, known), rtol=1e-5, atol=1e-7)
    assert (rows > 0).sum() > 12 or delta == 0.3


def test_nothing_confirmed_is_self_annotation():
    rows = [("a", [3]), ("b", [3]), ("x", [0, 1]), ("y", [0, 1, 2])]
    data = Dataset.from_lists(rows, [("z", [0])], ["a", "b", "c", "d"])
    more = gandalf(data, targets="calibrated", known="ignore")
    assert more.train.targets[4:].toarray().tolist() == np.eye(4).tolist()
    strangers = Dataset.from_lists(rows, [("z", [0])], ["A", "B", "C", "D"])
    more = gandalf(strangers, targets="calibrated")
    assert more.train.targets[4:].toarray().tolist() == np.eye(4).tolist()


def test_it_says_what_it_did():
    data, said = make(points=200), []
    gandalf(data, say=said.append)
    gandalf(data, targets="calibrated", known="ignore", say=said.append)
    assert "of the targets from the graph are right where train knows" in said[0]
    assert said[1].startswith("7 label texts are train texts too; with known=merge they have the labels")
    assert said[2].startswith("calibrated on ")
    assert said[3].endswith("with known=ignore they do not get the labels of their train rows")
    strangers = Dataset.from_lists([("x", [0, 1])], [("z", [0])], ["a", "b"])
    gandalf(strangers, say=said.append)
    gandalf(data, targets="self", say=said.append)
    assert len(said) == 4


def test_self_annotation_has_no_known_labels():
    data = make()
    assert label_rows(gandalf(data, targets="self"), data).tolist() == np.eye(12).tolist()


def test_wrong_words():
    with pytest.raises(SettingError, match="'merge'"):
        gandalf(make(), known="merged")
    with pytest.raises(SettingError, match="'calibrated'"):
        gandalf(make(), targets="calibrate")
