"""Heads fitted after training: what they read, and what they count."""

import numpy as np
import pytest
from megalabel.training.fit_heads import fit_heads

import megalabel as ml
from megalabel.data.hold_out import hold_out
from megalabel.errors import SettingError
from megalabel.recipes import load_recipe

ONLY = ["fitted={linear: {kind: linear}, named: {kind: overlap}}", "predict.weights=fusion"]


@pytest.fixture(scope="module")
def data():
    return ml.load("synthetic:points=300,labels=30,seed=2")


def fitted(data, *changes):
    return fit_heads(load_recipe("unidec-cpu", [*ONLY, *changes]), None, data, lambda line: None)


def test_points_of_a_held_out_part_are_counted(data):
    held = hold_out(data, share=0.2, seed=0)
    counts = np.bincount(data.train.targets.indices, minlength=len(data.labels))
    assert len(held.train) < len(data.train)
    assert np.array_equal(fitted(held).counts, counts)


def test_points_of_a_validation_set_that_was_given_are_not(data):
    held = hold_out(data, share=0.2, seed=0)
    given = held.replace(before=None)
    counts = np.bincount(held.train.targets.indices, minlength=len(data.labels))
    assert np.array_equal(fitted(given).counts, counts)


@pytest.mark.parametrize(("words", "left"), [(20, True), (21, False)])
def test_character_ngrams_are_for_short_texts(words, left):
    texts = [" ".join(f"word{(n + row) % 40}" for n in range(words)) for row in range(20)]
    data = ml.Dataset.from_lists([(text, [row % 4]) for row, text in enumerate(texts)], [("a", [0])], list("abcd"))
    assert bool(fitted(data).ngrams.characters) is left
    assert fitted(data, "ngrams={characters: 1024}").ngrams.characters == 1024


def test_texts_alone_need_no_ngrams(data):
    found = fit_heads(
        load_recipe("unidec-cpu", ["fitted={named: {kind: overlap, side: query, half: 5}}", "predict.weights=fusion"]),
        None, data, lambda line: None,
    )  # fmt: skip
    assert found.ngrams is None
    assert found.heads["named"].half == 5
    best = found.answers(data.labels.texts[:3], {})["named"].best(1, None)
    assert best.ids.ravel().tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("settings", "what"),
    [("{kind: overlap, C: 2}", "C"), ("{kind: linear, half: 2}", "half"), ("{kind: memory, side: query}", "side")],
)
def test_settings_of_another_kind_are_refused(settings, what):
    with pytest.raises(SettingError, match=f"has no setting {what}"):
        load_recipe("unidec-cpu", [f"fitted={{one: {settings}}}", "predict.weights=fusion"])
