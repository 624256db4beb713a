"""Sets of labels above a threshold: every figure against scikit-learn, and the short table."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn.metrics import f1_score, precision_score, recall_score

from megalabel.errors import DataError
from megalabel.metrics import set_curve


def rankings(seed=0, rows=60, labels=25, k=12, ties=False):
    """Random rankings [rows, k] with scores, cut short here and there, and a truth with empty rows."""
    rng = np.random.default_rng(seed)
    scores = rng.random((rows, labels))
    if ties:
        scores = np.round(scores * 8) / 8
    truth = rng.random((rows, labels)) < 0.15 + 0.3 * (scores > 0.8)
    truth[::9] = False
    ids = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    values = np.take_along_axis(scores, ids, axis=1).astype(np.float32)
    length = rng.integers(k // 2, k + 1, rows)
    gone = np.arange(k) >= length[:, None]
    return np.where(gone, -1, ids), np.where(gone, -np.inf, values), csr_matrix(truth, dtype=np.float32)


@pytest.mark.parametrize("ties", [False, True])
def test_every_figure_is_that_of_scikit_learn(ties):
    ids, scores, truth = rankings(ties=ties)
    curve = set_curve(ids, scores, truth)
    assert np.all(np.diff(curve.threshold) < 0)
    for place in range(0, len(curve), 37):
        figures = curve.figures(place)
        returned = np.zeros(truth.shape, dtype=bool)
        row, column = np.nonzero((ids >= 0) & (scores >= figures.threshold))
        returned[row, ids[row, column]] = True
        correct = truth.toarray() > 0
        expected = {
            "precision": precision_score(correct, returned, average="micro", zero_division=0),
            "recall": recall_score(correct, returned, average="micro"),
            "micro_f1": f1_score(correct, returned, average="micro"),
            "sample_f1": f1_score(correct, returned, average="samples", zero_division=0),
            "macro_f1": f1_score(correct, returned, average="macro", zero_division=0),
            "empty": np.mean(~returned.any(axis=1)),
        }
        for name, value in expected.items():
            assert getattr(figures, name) == pytest.approx(100 * value, abs=1e-3), name
        assert figures.labels_per_text == pytest.approx(returned.sum() / len(ids), abs=1e-4)


def test_given_thresholds_are_measured_in_their_order():
    ids, scores, truth = rankings(1)
    whole = set_curve(ids, scores, truth)
    places = [5, 0, len(whole) - 1]
    some = set_curve(ids, scores, truth, thresholds=whole.threshold[places])
    assert [some.figures(i) for i in range(3)] == [whole.figures(place) for place in places]
    above, equal = set_curve(ids, scores, truth, thresholds=np.array([2.0, float(scores.max())])).rows()
    assert (above.labels_per_text, above.micro_f1, above.empty) == (0, 0, 100)
    assert equal.labels_per_text > 0  # a label with exactly that score is returned


def test_the_short_table_keeps_the_best_thresholds():
    ids, scores, truth = rankings(2, rows=400)
    curve = set_curve(ids, scores, truth)
    short = curve.short(len(ids))
    assert len(short) < 90 < len(curve)
    for name in ("micro_f1", "sample_f1", "macro_f1"):
        assert max(getattr(row, name) for row in short) == pytest.approx(vars(curve)[name].max(), abs=1e-4)
    assert min(row.labels_per_text for row in short) * len(ids) >= 19.9  # fewer would be chance
    lowest = short[-1]
    assert lowest == curve.figures(len(curve) - 1)
    reached = curve.reaching(30.0, len(ids))
    assert curve.figures(reached) in short and curve.precision[reached] > 30
    assert curve.reaching(99.9, len(ids)) is None


def test_nothing_to_measure_is_an_error():
    ids, scores, truth = rankings(3)
    with pytest.raises(DataError, match="no sets to measure"):
        set_curve(np.full_like(ids, -1), scores, truth)
    with pytest.raises(DataError, match="no sets to measure"):
        set_curve(ids, scores, csr_matrix(truth.shape))
    with pytest.raises(DataError, match="scores"):
        set_curve(ids, scores[:, :-1], truth)
