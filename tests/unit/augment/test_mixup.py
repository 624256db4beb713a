import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from megalabel.augment import label_mixup, mixup
from megalabel.data import Dataset, Split
from megalabel.errors import SettingError

BOTH = [mixup, label_mixup]


def word_set(points, labels, seed):
    """Every word names its row, so that a mixed text tells where it came from."""
    rng = np.random.default_rng(seed)
    rows = [
        (" ".join([f"r{i}"] * int(rng.integers(1, 9))), rng.choice(labels, min(labels, 2), replace=False).tolist())
        for i in range(points)
    ]
    return Dataset.from_lists(rows, [("t", [0])], [" ".join([f"l{i}"] * (1 + i % 4)) for i in range(labels)])


@pytest.mark.parametrize("augment", BOTH)
@given(
    points=st.integers(2, 30),
    labels=st.integers(1, 12),
    seed=st.integers(0, 999),
    share=st.floats(0.05, 1),
    alpha=st.sampled_from([0.1, 1.0, 50.0]),
)
def test_targets_go_by_the_words(augment, points, labels, seed, share, alpha):
    data = word_set(points, labels, seed)
    more = augment(data, share=share, alpha=alpha, seed=seed)
    old, new = data.train, more.train
    assert len(new) == len(old) + max(1, round(share * points))
    assert new.texts[: len(old)] == old.texts
    assert (new.targets[: len(old)] != old.targets).nnz == 0
    assert len(set(new.uids)) == len(new)
    assert (more.val, more.test, more.counts, more.points) == (data.val, data.test, data.counts, data.points)
    truth = {f"r{i}": row for i, row in enumerate(old.targets.toarray())}
    truth |= {f"l{i}": row for i, row in enumerate(np.eye(labels))}
    for text, row in zip(new.texts[len(old) :], new.targets[len(old) :].toarray(), strict=True):
        words = text.split()
        sources = sorted(set(words), key=words.index)
        assert len(sources) == 2
        assert sources[1][0] == ("r" if augment is mixup else "l")
        expected = sum(words.count(source) / len(words) * truth[source] for source in sources)
        np.testing.assert_allclose(row, expected, rtol=1e-5)
        assert row.max() <= 1


@pytest.mark.parametrize("augment", BOTH)
def test_same_seed_same_rows(augment):
    data = word_set(20, 5, 0)
    first, again, other = (augment(data, seed=seed).train.texts for seed in (1, 1, 2))
    assert first == again != other


def test_small_alpha_stays_close_to_one_text():
    data = Dataset.from_lists([("a " * 20, [i]) for i in range(200)], [("a", [0])], ["label"] * 200)
    near, far = (mixup(data, alpha=alpha).train.targets[200:].max(axis=1).toarray().mean() for alpha in (0.1, 10.0))
    assert near > 0.9 > 0.7 > far


def test_filter_pairs_stay_unless_the_other_row_has_the_label():
    data = Dataset.from_lists([("a", [0]), ("b", [1])], [("a", [0])], ["A", "B", "C"])
    train = Split(data.train.texts, data.train.targets, data.train.uids, np.array([[0, 1], [1, 2]]))
    mixed = mixup(data.replace(train=train)).train
    assert sorted(map(tuple, mixed.filter.tolist())) == [(0, 1), (1, 2), (2, 2), (3, 2)]
    assert (mixed.targets[2:].toarray() > 0).tolist() == [[True, True, False]] * 2


def test_empty_texts_add_no_words():
    data = Dataset.from_lists([("", [0]), ("b c", [1])], [("a", [0])], ["A", "B"])
    mixed = mixup(data).train
    assert mixed.targets[2:].toarray().tolist() == [[0, 1], [0, 1]]


@pytest.mark.parametrize("augment", BOTH)
@pytest.mark.parametrize("options", [{"alpha": 0}, {"alpha": float("nan")}, {"share": 0}, {"share": 2}])
def test_wrong_settings(augment, options):
    with pytest.raises(SettingError, match=next(iter(options))):
        augment(word_set(3, 2, 0), **options)
