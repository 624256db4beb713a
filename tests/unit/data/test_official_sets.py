"""The official sets: looked up by name and by size; text length separates a title set from its full-text twin."""

from dataclasses import replace

import pytest

from megalabel.data import official_sets
from megalabel.data.dataset import Dataset
from megalabel.data.official_sets import OFFICIAL_SETS, OfficialSet, find_official_set, recognise
from megalabel.errors import SettingError
from megalabel.recipes.load_recipe import list_recipes
from megalabel.recipes.published import load_published


def small(words, val=None):
    text = " ".join(["word"] * words)
    return Dataset.from_lists(train=[(text, [0])] * 3, test=[(text, [1])] * 2, labels=["a", "b"], val=val)


@pytest.fixture
def twins(monkeypatch):
    titles = OfficialSet("Twin-Titles", 2, 3, 2, "title", False)
    long = replace(titles, name="Twin", fields="title+content")
    monkeypatch.setattr(official_sets, "OFFICIAL_SETS", {one.name: one for one in (long, titles)})
    return titles, long


def test_text_length_distinguishes_sets_of_equal_size(twins):
    titles, long = twins
    assert recognise(small(5)) is titles
    assert recognise(small(60)) is long


def test_validation_rows_are_train_rows(twins):
    data = small(5, val=[("word", [0])])
    assert recognise(data) is None
    assert recognise(data.replace(train=data.train.rows([0, 1]))) is twins[0]


def test_names_ignore_case():
    assert find_official_set("eurlex-4k") is OFFICIAL_SETS["EURLex-4K"]
    with pytest.raises(SettingError, match="did you mean 'LF-Amazon-131K'"):
        find_official_set("LF-Amazon131K")


def test_every_published_set_is_known():
    named = {figure.data for name in list_recipes() for figure in load_published(name)}
    assert named <= set(OFFICIAL_SETS)
    assert all("filter_labels_test.txt" in known.files for known in OFFICIAL_SETS.values() if known.filtered)
