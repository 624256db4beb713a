"""Thresholds: chosen for a goal or a precision, read and written."""

import json

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from megalabel.errors import DataError, SettingError
from megalabel.metrics import SetReport, Thresholds, set_curve


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(4)
    truth = rng.random((300, 20)) < 0.2
    scores = (np.where(truth, 0.65, 0.35) + 0.2 * rng.normal(size=truth.shape)).astype(np.float32)
    ids = np.argsort(-scores, axis=1)
    return ids, np.take_along_axis(scores, ids, axis=1), csr_matrix(truth, dtype=np.float32)


@pytest.fixture(scope="module")
def thresholds(rows):
    return Thresholds.fit(*rows)


def test_each_goal_gets_its_best_threshold(rows, thresholds):
    curve = set_curve(*rows)
    for goal in ("micro-f1", "sample-f1", "macro-f1"):
        chosen = thresholds.choose(goal)
        name = goal.replace("-", "_")
        assert chosen.goal == goal
        assert getattr(chosen.expected, name) == pytest.approx(vars(curve)[name].max(), abs=1e-4)
    assert thresholds.choose() == thresholds.choose("micro-f1")
    assert "chosen for micro-f1 on 300 validation texts" in thresholds.choose().summary()


def test_a_precision_gets_the_lowest_threshold_that_reaches_it(rows, thresholds):
    curve = set_curve(*rows)
    for precision in (0.6, 0.8, 0.9):
        chosen = thresholds.choose(precision=precision)
        assert chosen.value == curve.threshold[curve.reaching(100 * precision, 300)]
        assert chosen.goal == f"precision {precision}"
        assert chosen.expected.precision > 100 * precision  # a margin for chance
    assert thresholds.choose(precision=0.925).expected.precision >= 92.5  # between two rows of the table


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"goal": "micro_f1"}, "unknown goal 'micro_f1'; did you mean 'micro-f1'"),
        ({"precision": 0.0}, "above 0 and at most 1"),
        ({"precision": 90}, "above 0 and at most 1"),
        ({"precision": float("nan")}, "above 0 and at most 1"),
        ({"goal": "micro-f1", "precision": 0.9}, "name one of them"),
    ],
)
def test_a_mistake_is_named(thresholds, asked, message):
    with pytest.raises(SettingError, match=message):
        thresholds.choose(**asked)


def test_a_precision_that_no_threshold_has_is_an_error(rows):
    ids, scores, truth = rows
    wrong = Thresholds.fit(ids, np.sort(np.random.default_rng(0).random(scores.shape))[:, ::-1], truth)
    with pytest.raises(
        SettingError, match=r"no threshold surely has a precision of 0\.99, by the 300 validation texts; the hi"
    ):
        wrong.choose(precision=0.99)


def test_too_few_rows_or_hits_give_no_threshold(rows):
    ids, scores, truth = rows
    with pytest.raises(DataError, match="29 validation texts with labels, 30 are needed"):
        Thresholds.fit(ids[:29], scores[:29], truth[:29])
    misses = csr_matrix((np.ones(300), (np.arange(300), np.full(300, 19))), shape=(300, 20))
    with pytest.raises(DataError, match="no relevant label was found"):
        Thresholds.fit(np.tile(np.arange(5), (300, 1)), scores[:, :5], misses)


def test_they_survive_json(thresholds):
    stored = json.loads(json.dumps(thresholds.to_dict()))
    assert Thresholds.from_dict(stored) == thresholds
    assert stored["value"] == thresholds.choose().value and stored["goal"] == "micro-f1"


@pytest.mark.parametrize(
    "damage",
    [
        lambda values: values.pop("rows"),
        lambda values: values.update(rows="many"),
        lambda values: values.update(curve=[]),
        lambda values: values.update(curve=[1]),
        lambda values: values["curve"][0].pop("recall"),
        lambda values: values["curve"][0].update(recall="x"),
        lambda values: values["curve"][0].update(threshold=float("nan")),
        lambda values: values["curve"].reverse(),
    ],
)
def test_damage_is_found(thresholds, damage):
    values = json.loads(json.dumps(thresholds.to_dict()))
    damage(values)
    with pytest.raises(DataError):
        Thresholds.from_dict(values)


def test_a_report_of_other_rows(rows, thresholds):
    ids, scores, truth = (part[:100] for part in rows)
    report = SetReport.of(thresholds, ids, scores, truth)
    assert report.threshold == thresholds.choose()
    assert [row.threshold for row in report.curve] == [row.threshold for row in thresholds.curve]
    assert report.figures in report.curve
    plain = report.to_dict()
    assert plain["value"] == thresholds.choose().value and plain["micro_f1"] == report.figures.micro_f1
    assert plain["validation"]["micro_f1"] == thresholds.choose().expected.micro_f1
