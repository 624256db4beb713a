"""How much of a ranking is the answer."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.sparse import csr_matrix

import megalabel as ml
from megalabel.errors import SettingError
from megalabel.metrics import Thresholds
from megalabel.model.cut import BEST, DEPTH, Cut, fit_thresholds, make_cut
from megalabel.types import TopK


@pytest.fixture(scope="module")
def thresholds():
    truth = csr_matrix(np.eye(40, dtype=np.float32))
    ids = np.stack([np.arange(40), (np.arange(40) + 1) % 40], axis=1)
    return Thresholds.fit(ids, np.tile(np.array([0.8, 0.3], dtype=np.float32), (40, 1)), truth)


@pytest.fixture
def model(thresholds):
    recipe = SimpleNamespace(predict=SimpleNamespace(candidates=50))
    return SimpleNamespace(thresholds=thresholds, tail=0.0, fusion=None, recipe=recipe)


def test_without_k_the_threshold_decides(model, thresholds):
    assert make_cut(model) == Cut(DEPTH, thresholds.choose().value, thresholds.choose())
    assert make_cut(model, precision=0.9).threshold.goal == "precision 0.9"
    assert "chosen for micro-f1" in make_cut(model).about
    model.fusion = object()
    assert make_cut(model).k == 50  # no more than a head proposes


def test_k_and_min_score_are_as_asked(model):
    assert make_cut(model, 7) == Cut(7)
    assert make_cut(model, 7, min_score=0.2) == Cut(7, 0.2)
    assert make_cut(model, min_score=0.2) == Cut(DEPTH, 0.2)
    assert make_cut(model, 7).about is None


@pytest.mark.parametrize(
    ("change", "options", "reason"),
    [
        ({"thresholds": None}, {}, "no threshold was chosen for this model"),
        ({}, {"heads": "dual"}, "not for dual alone"),
        ({}, {"tail": 0.5}, "not for scores with a tail of 0.5"),
        ({"tail": 0.5}, {}, "not for scores with a tail of 0.5"),
    ],
)
def test_without_a_threshold_the_best_are_returned_and_it_is_said(model, change, options, reason):
    vars(model).update(change)
    cut = make_cut(model, **options)
    assert (cut.k, cut.least) == (BEST, None)
    assert reason in cut.about and cut.about.endswith(f"the {BEST} best labels of each text")
    with pytest.raises(SettingError, match=f"precision needs a threshold: .*{reason}"):
        make_cut(model, precision=0.9, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"k": 0}, "k must be at least 1"),
        ({"k": 3, "precision": 0.9}, "precision and k both say"),
        ({"k": 3, "goal": "micro-f1"}, "goal and k both say"),
        ({"min_score": 0.1, "goal": "micro-f1"}, "goal and min_score both say"),
    ],
)
def test_contradictions_are_refused(model, options, message):
    with pytest.raises(SettingError, match=message):
        make_cut(model, **options)


class _Ranks:
    """A model that ranks label 0 first, then the label of the row, for rows in order."""

    fusion, thresholds, tail = None, None, 0.0

    def search(self, texts, k, exclude):
        ids = np.stack([np.zeros(len(texts)), 1 + np.arange(len(texts)) % 9, np.full(len(texts), -1)], axis=1)
        return TopK(ids.astype(np.int64), np.tile(np.array([0.9, 0.5, -np.inf], np.float32), (len(texts), 1)))


def _data(rows, *, held_out):
    own = csr_matrix((np.ones(rows), (np.arange(rows), 1 + np.arange(rows) % 9)), shape=(rows, 10))
    part = ml.Split([f"text {row}" for row in range(rows)], own, [str(row) for row in range(rows)])
    labels = ml.Labels([f"label {label}" for label in range(10)], [str(label) for label in range(10)])
    whole = ml.Dataset(part, part, labels, val=part)
    return whole.replace(before=whole) if held_out else whole


def test_a_label_that_cannot_be_right_on_held_out_rows_does_not_count():
    said = []
    chosen = fit_thresholds(_Ranks(), _data(40, held_out=True), None, said.append)
    assert chosen.choose().expected.precision == 100 and chosen.choose().expected.recall == 100
    assert "micro F1 100.00" in said[0]
    plain = fit_thresholds(_Ranks(), _data(40, held_out=False), None, said.append)
    assert plain.choose().expected.precision == 50


def test_too_few_rows_are_said():
    said = []
    assert fit_thresholds(_Ranks(), _data(12, held_out=True), None, said.append) is None
    assert said == [
        "12 validation texts with labels, 30 are needed to choose a threshold: predict returns the 5 best labels of "
        "a text"
    ]
