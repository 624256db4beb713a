import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from megalabel.data import Dataset, Labels, Split, hold_out
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
)
def test_rules_hold_for_any_symmetric_set(items, density, share, seed, by_text, repeats, selves):
    data = symmetric_set(items, density, seed, by_text=by_text, repeats=repeats, selves=selves)
    try:
        held = hold_out(data, share=share, seed=seed)
    except DataError:
        return
    assert reverse_share(held, held.val) == 0.0
    before = np.bincount(data.train.targets.indices, minlength=items)
    after = np.bincount(held.train.targets.indices, minlength=items)
    assert ((after > 0) == (before > 0)).all()
    assert (np.diff(held.val.targets.indptr) > 0).all()
    assert (np.diff(held.train.targets.indptr) > 0).all()
    assert held.refit() is data
    assert held.counts.tolist() == data.counts.tolist()
    assert held.val.targets.multiply(held.val.excluded()).nnz == 0


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
