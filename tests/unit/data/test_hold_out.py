import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from megalabel.data import Dataset, Labels, Split, hold_out, load
from megalabel.data.items import match_items, reverse_share
from megalabel.data.make_filters import make_filters
from megalabel.errors import DataError, SettingError


def symmetric_set(items, density, seed, *, by_text=False, repeats=0, selves=False):
    """Random related items, most pairs in both directions, as point and as label."""
    rng = np.random.default_rng(seed)
    pairs = rng.random((items, items)) < density
    pairs |= pairs.T & (rng.random((items, items)) < 0.9)
    pairs[np.arange(items), (np.arange(items) + 1) % items] = True
    np.fill_diagonal(pairs, rng.random(items) < 0.3 if selves else False)
    rows = np.concatenate([np.arange(items), rng.integers(0, items, repeats)]).astype(int)
    names = [f"item {i}" for i in range(items)]
    uids = [f"trn-{i}" for i in range(len(rows))] if by_text else [f"u{i}" for i in rows]
    train = Split([names[i] for i in rows], sparse.csr_matrix(pairs[rows].astype(np.float32)), uids)
    label_uids = [f"lbl-{i}" for i in range(items)] if by_text else [f"u{i}" for i in range(items)]
    return Dataset(train=train, test=train.rows(np.array([0])), labels=Labels(names, label_uids))


@settings(max_examples=150)
@given(
    items=st.integers(8, 60),
    density=st.floats(0.02, 0.4),
    share=st.floats(0.05, 0.6),
    seed=st.integers(0, 999),
    by_text=st.booleans(),
    repeats=st.integers(0, 20),
    selves=st.booleans(),
    like_test=st.booleans(),
)
def test_rules_hold_for_any_symmetric_set(items, density, share, seed, by_text, repeats, selves, like_test):
    data = symmetric_set(items, density, seed, by_text=by_text, repeats=repeats, selves=selves)
    try:
        held = hold_out(data, share=share, seed=seed, like_test=like_test)
    except DataError:
        return
    assert reverse_share(held, held.val) == 0.0
    before = np.bincount(data.train.targets.indices, minlength=items)
    after = np.bincount(held.train.targets.indices, minlength=items)
    assert ((after > 0) == (before > 0)).all()
    assert (np.diff(held.val.targets.indptr) > 0).all()
    assert (np.diff(held.train.targets.indptr) > 0).all()
    assert held.refit() is data
    for split, places in zip((held.train, held.val), held.refit_places(), strict=True):
        assert [data.train.uids[row] for row in places] == list(split.uids)
        assert [data.train.texts[row] for row in places] == list(split.texts)
    assert held.counts.tolist() == data.counts.tolist()
    assert held.val.targets.multiply(held.val.excluded()).nnz == 0


def known_and_counts(split, labels):
    """Return, of each row, whether its text is a label and how many labels it has."""
    return match_items(split, labels) >= 0, np.diff(split.targets.indptr)


def half_known(train, test):
    """Rows (is it a label text?, number of labels) over 40 common labels; label texts are labels that one row has."""
    numbers = {}

    def split(rows, prefix):
        points = []
        for i, (known, count) in enumerate(rows):
            uid = f"{prefix}{i}" if not known else f"item{numbers.setdefault((prefix, i), len(numbers))}"
            points.append((uid, [(7 * i + j) % 40 for j in range(count)]))
        return points

    parts = {"train": split(train, "trn"), "test": split(test, "tst")}
    uids = [f"common{i}" for i in range(40)] + [f"item{i}" for i in range(len(numbers))]
    keepers = [(f"keeper{i}", list(range(i, len(uids), 4))) for i in range(4)]  # they give every label a train point
    parts["train"] += keepers

    def made(points):
        matrix = np.zeros((len(points), len(uids)), dtype=np.float32)
        for row, (_, ids) in enumerate(points):
            matrix[row, ids] = 1
        return Split([uid for uid, _ in points], sparse.csr_matrix(matrix), [uid for uid, _ in points])

    return Dataset(train=made(parts["train"]), test=made(parts["test"]), labels=Labels(uids, uids))


TRAIN = [(known, count) for known in (False, True) for count in (1, 2, 5, 6) for _ in range(25)]


@pytest.mark.parametrize(
    ("test", "share", "mean"),
    [
        ([(True, 2), (False, 2)], 0.5, 2.0),
        ([(True, 5), (True, 5), (True, 5), (False, 5)], 0.75, 5.0),
        ([(False, 1)] * 3 + [(True, 3)], 0.25, 1.5),
        ([(False, 4)], 0.0, 4.0),
        ([(True, 3)], 1.0, 3.0),
    ],
)
def test_val_has_the_shares_of_test(test, share, mean):
    data = half_known(TRAIN, test * 4)
    for seed in range(5):
        held = hold_out(data, share=0.2, seed=seed)
        known, counts = known_and_counts(held.val, held.labels)
        assert len(held.val) == 41
        assert abs(known.sum() - share * 41) <= 2  # one, and the row that crossed it
        assert abs(counts.sum() - mean * 41) <= mean + 6


def slow_like_test(data, order, size, may_hold):
    """Return the rows that follow test's two numbers, by looking at all that are left each time."""
    known, counts = known_and_counts(data.train, data.labels)
    test_known, test_counts = known_and_counts(data.test, data.labels)
    mean, share = test_counts.mean(), test_known.mean()
    left, held = list(order), []
    while left and len(held) < size:
        labels, texts = sum(counts[row] for row in held), sum(known[row] for row in held)
        fits = left
        if abs(labels - mean * len(held)) > mean:
            few = labels < mean * len(held)
            fits = [row for row in fits if (counts[row] >= mean if few else counts[row] <= mean)] or left
        if abs(texts - share * len(held)) > 1:
            fits = [row for row in fits if known[row] == (texts < share * len(held))] or fits
        row = fits[0]
        left.remove(row)
        if may_hold(held, row):
            held.append(row)
    return held


@pytest.mark.parametrize("size", [20, 82, 180])
@pytest.mark.parametrize("seed", range(4))
def test_rows_like_those_of_test_are_found_as_slowly(seed, size):
    data = half_known(TRAIN, [(True, 4)] * 3 + [(False, 1)] * 5)
    targets = data.train.targets.toarray()

    def may_hold(held, row):  # no label text names another item here, so there are no reverse pairs
        return (np.delete(targets, [*held, row], axis=0).sum(axis=0) >= 1)[targets[row] > 0].all()

    order = np.random.default_rng(seed).permutation(len(data.train)).tolist()
    wanted = slow_like_test(data, order, size, may_hold)
    assert list(hold_out(data, share=size / len(data.train), seed=seed).val.uids) == [
        data.train.uids[row] for row in wanted
    ]


def test_only_two_numbers_are_taken_from_test():
    data = half_known(TRAIN, [(True, 4)] * 3 + [(False, 1)] * 5)
    shuffled = np.random.default_rng(0).permutation(len(data.labels))
    other = data.test.rows(np.arange(8)[::-1])
    moved = Split(other.texts, other.targets[:, shuffled].tocsr(), other.uids)
    first, second = hold_out(data, seed=2), hold_out(data.replace(test=moved), seed=2)
    assert list(first.val.uids) == list(second.val.uids)


def test_where_test_cannot_be_matched_the_size_stays():
    data = half_known([(True, 1)] * 60 + [(False, 1)] * 5, [(False, 4)] * 3)
    held = hold_out(data, share=0.3)
    assert len(held.val) == round(0.3 * 69)
    left = np.bincount(held.train.targets.indices, minlength=len(held.labels))
    for row in np.flatnonzero(~known_and_counts(held.train, held.labels)[0]):  # others that could be, are held out
        assert left[held.train.targets[row].indices].min() == 1


def test_random_rows_are_what_they_were():
    plain = hold_out(load("synthetic:points=100,labels=12"), seed=3)
    assert plain.val.uids == ["trn-63", "trn-35", "trn-23", "trn-34", "trn-0", "trn-49", "trn-43", "trn-65"]
    data = symmetric_set(60, 0.1, 5)
    before = ["u22", "u0", "u3", "u38", "u37", "u17", "u39", "u43", "u49", "u25", "u48", "u30"]
    assert hold_out(data, share=0.2, seed=3, like_test=False).val.uids == before
    assert hold_out(data, share=0.2, seed=3, into="test").test.uids == before


def test_same_seed_same_rows_and_another_seed_others():
    data = symmetric_set(40, 0.1, 0)
    first, again, other = (list(hold_out(data, seed=seed).val.uids) for seed in (1, 1, 2))
    assert first == again != other


def test_plain_sets_keep_a_train_point_for_every_label():
    rng = np.random.default_rng(0)
    rows = [(f"text {i}", sorted(set(rng.integers(0, 30, 3).tolist()))) for i in range(200)]
    data = Dataset.from_lists(rows, [("t", [0])], [f"label {i}" for i in range(30)])
    held = hold_out(data, share=0.3)
    assert len(held.val) == 60
    assert len(held.train) == 140
    assert (np.bincount(held.train.targets.indices, minlength=30) > 0).all()


def test_val_filters_reciprocal_pairs_where_test_does():
    data = symmetric_set(40, 0.15, 3)
    held_test = make_filters(hold_out(data, share=0.2, into="test"))
    held = hold_out(held_test, share=0.2)
    own = match_items(held.val, held.labels)
    assert (held.val.filter[:, 1] != own[held.val.filter[:, 0]]).any()


def test_into_test_counts_propensities_on_the_remaining_rows():
    data = symmetric_set(40, 0.15, 3)
    made = hold_out(data, share=0.2, into="test")
    assert made.points == len(made.train)
    assert made.counts.tolist() == np.bincount(made.train.targets.indices, minlength=40).tolist()


def test_max_rows_caps_the_size():
    assert len(hold_out(symmetric_set(60, 0.2, 1), share=0.5, max_rows=3).val) == 3


def test_nothing_to_hold_out():
    with pytest.raises(DataError, match="no train row can be held out"):
        hold_out(Dataset.from_lists([("a", [0]), ("b", [1])], [("c", [0])], ["x", "y"]))


@pytest.mark.parametrize("share", [0.0, 1.0, -1.0, float("nan")])
def test_bad_share(share):
    with pytest.raises(SettingError):
        hold_out(symmetric_set(10, 0.2, 0), share=share)


def test_val_is_not_held_out_twice():
    with pytest.raises(SettingError, match="already has val"):
        hold_out(hold_out(symmetric_set(40, 0.2, 0)))
