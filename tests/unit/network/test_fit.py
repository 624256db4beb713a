"""Fitted heads: which features and counts they use."""

from dataclasses import replace

import numpy as np
import pytest

import megalabel as ml
from megalabel.augment import gandalf
from megalabel.data.hold_out import hold_out
from megalabel.errors import SettingError
from megalabel.heads.live import Live
from megalabel.network.fit import fit_heads
from megalabel.network.queries import QueryTexts
from megalabel.recipes import load_recipe

ONLY = ["heads.linear={kind: linear}", "heads.named={kind: overlap}"]


@pytest.fixture(scope="module")
def data():
    return ml.load("synthetic:points=300,labels=30,seed=2")


def fitted(data, *changes):
    """Fit the heads of a recipe that read nothing of a network."""
    recipe = load_recipe("unidec-cpu", ["predict.weights=fusion", *changes])
    return fit_heads(recipe.heads, recipe.ngrams.options(), None, data, seed=recipe.seed, say=lambda line: None)


def test_held_out_points_are_counted(data):
    held = hold_out(data, share=0.2, seed=0)
    counts = np.bincount(data.train.targets.indices, minlength=len(data.labels))
    assert len(held.train) < len(data.train)
    assert np.array_equal(fitted(held, *ONLY).counts, counts)


def test_points_of_a_given_validation_set_are_not_counted(data):
    held = hold_out(data, share=0.2, seed=0)
    given = held.replace(before=None)
    counts = np.bincount(held.train.targets.indices, minlength=len(data.labels))
    assert np.array_equal(fitted(given, *ONLY).counts, counts)


@pytest.mark.parametrize(("words", "left"), [(20, True), (21, False)])
def test_character_ngrams_are_for_short_texts(words, left):
    texts = [" ".join(f"word{(n + row) % 40}" for n in range(words)) for row in range(20)]
    data = ml.Dataset.from_lists([(text, [row % 4]) for row, text in enumerate(texts)], [("a", [0])], list("abcd"))
    assert bool(fitted(data, *ONLY).ngrams.characters) is left
    assert fitted(data, *ONLY, "ngrams={characters: 1024}").ngrams.characters == 1024


@pytest.mark.parametrize(
    ("settings", "options"),
    [
        ("labels: self", {"targets": "self"}),
        ("labels: gandalf", {"max_targets": None}),
        ("labels: gandalf, known: ignore, max_targets: 3", {"known": "ignore", "max_targets": 3}),
        ("labels: calibrated", {"targets": "calibrated", "max_targets": None}),
    ],
)
def test_label_texts_as_rows_are_those_of_gandalf(data, settings, options):
    texts = [*data.labels.texts[:20], *data.train.texts[20:]]
    data = data.replace(train=replace(data.train, texts=texts))
    head = fitted(data, f"heads.near={{kind: memory, {settings}}}").heads["near"]
    train = gandalf(data, seed=load_recipe("unidec-cpu").seed, **options).train
    assert (head.targets_ != train.without(train.filter).targets).nnz == 0


def test_texts_alone_need_no_ngrams(data):
    heads = fitted(data, "heads.named={kind: overlap, side: query, half_life: 5}")
    assert heads.ngrams is None
    assert list(heads.heads) == ["named"]
    assert heads.heads["named"].half_life == 5
    unchanged = Live(len(data.labels), len(data.labels))
    answers = heads.answers(QueryTexts(data.labels.texts[:3], None, heads), lambda name: unchanged)
    best = answers["named"].best(1, None)
    assert best.ids.ravel().tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ("{kind: overlap, C: 2}", "C"),
        ("{kind: linear, half_life: 2}", "half_life"),
        ("{kind: memory, side: query}", "side"),
    ],
)
def test_settings_of_another_kind_are_refused(settings, what):
    with pytest.raises(SettingError, match=f"unknown key 'heads.one.{what}'"):
        load_recipe("unidec-cpu", [f"heads.one={settings}", "predict.weights=fusion"])
