"""A data set that is mapped from the cache is the one in memory, through every reader and transform."""

import gc

import numpy as np
import pytest

import megalabel as ml
from megalabel.augment import gandalf
from megalabel.data import matrices
from megalabel.data.cache import cache_entries
from megalabel.data.formats import FORMATS
from megalabel.data.hold_out import hold_out
from megalabel.data.items import match_items
from megalabel.data.make_filters import make_filters
from megalabel.data.problems import find_problems
from megalabel.data.save import save
from megalabel.data.texts import Texts
from megalabel.model.train_rows import TrainRows
from megalabel.training.run_folder import fingerprint


@pytest.fixture
def both(tmp_path, monkeypatch):
    """Return what a function gives with data in memory, and with all data mapped."""
    monkeypatch.setenv("MEGALABEL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(matrices, "_CELLS", 50)

    def run(make):
        monkeypatch.setenv("MEGALABEL_MAP_ABOVE", "inf")
        plain = make()
        assert not cache_entries()["mapped"]
        monkeypatch.setenv("MEGALABEL_MAP_ABOVE", "0")
        return plain, make()

    yield run
    gc.collect()


def same(one, other):
    assert fingerprint(one) == fingerprint(other)
    assert one.labels.uids == list(other.labels.uids) and one.counts.tolist() == other.counts.tolist()
    for name, split in one.splits.items():
        assert split.uids == list(other.splits[name].uids) and np.array_equal(split.filter, other.splits[name].filter)
        assert split.targets.dtype == other.splits[name].targets.dtype


def symmetric():
    """Return a set whose points and labels are the same items, with soft relevance."""
    rng = np.random.default_rng(0)
    rows = [(f"item {i}", sorted(set(rng.integers(60, size=4).tolist()) - {i})) for i in range(60)]
    data = ml.Dataset.from_lists(rows[:50], rows[50:], [f"item {i}" for i in range(60)])
    data.train.targets.data[::3] = 0.5
    return data


@pytest.mark.parametrize("format", [name for name in FORMATS if name != "annif"])
def test_readers(both, tmp_path, format):
    data = symmetric()
    save(data, tmp_path / "set", format=format)
    plain, mapped = both(lambda: ml.load(tmp_path / "set"))
    same(plain, mapped)
    if format != "beir":
        assert isinstance(mapped.train.texts, Texts) and isinstance(plain.train.texts, list)
    assert not mapped.train.targets.data.flags.writeable


@pytest.mark.parametrize("known", ["merge", "ignore"])
def test_transforms(both, known):
    def make():
        held = hold_out(make_filters(symmetric()), share=0.2, seed=3)
        assert held.val is not None and (match_items(held.train, held.labels) >= 0).all()
        return gandalf(held, known=known)

    plain, mapped = both(make)
    same(plain, mapped)
    same(plain.refit(), mapped.refit())
    same(
        plain.replace(train=plain.train + plain.val, val=None),
        mapped.replace(train=mapped.train + mapped.val, val=None),
    )
    assert find_problems(plain) == find_problems(mapped)


def test_training_rows(both, tmp_path):
    def make():
        rows = TrainRows.of(hold_out(symmetric(), share=0.2))
        rows.save(tmp_path)
        return TrainRows.load(tmp_path)

    plain, mapped = both(make)
    assert list(plain.texts) == mapped.texts and plain.texts[3:5] == ["item 3", "item 4"]
    assert plain.held.tolist() == mapped.held.tolist() and (plain.targets != mapped.targets).nnz == 0


def test_synthetic(both):
    same(*both(lambda: ml.load("synthetic:points=300,labels=40")))
