import subprocess
import sys

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from megalabel.errors import DataError, SettingError
from megalabel.metrics import Report, evaluate
from megalabel.metrics.evaluate import METRICS

KEYS = {"P", "R", "nDCG", "MRR", "PSP", "PSnDCG", "coverage", "hits", "macroP", "macroR", "macroF1", "RP"}
GOLDEN = {
    "P@1": 0.333333, "R@1": 0.166667, "nDCG@1": 0.333333, "PSP@1": 0.254000, "PSnDCG@1": 0.254000, "coverage@1": 0.25,
    "P@3": 0.555556, "R@3": 1, "nDCG@3": 0.704382, "PSP@3": 1, "PSnDCG@3": 0.686375, "coverage@3": 1,
}  # fmt: skip


def test_golden_values_in_percent(golden):
    ids, truth, counts, points = golden
    report = evaluate(ids, truth, counts=counts, points=points)
    for name, value in GOLDEN.items():
        assert report.metrics[name] / 100 == pytest.approx(value, abs=1e-6), name
    assert set(report.metrics) == {f"{name}@{k}" for name in KEYS for k in (1, 3, 5)}
    assert report.propensity == {"A": 0.55, "B": 1.5, "points": 10}
    assert isinstance(report, Report) and (report.rows, report.labels) == (3, 5)


def random_case(rng):
    """A small problem with all that is awkward: empty rows, short rankings, k > L, grades, filters."""
    rows, labels = int(rng.integers(1, 9)), int(rng.integers(1, 13))
    width = int(rng.integers(1, labels + 4))
    ids = np.full((rows, width), -1, dtype=np.int64)
    for row in ids:
        size = int(rng.integers(0, min(width, labels) + 1))
        row[:size] = rng.permutation(labels)[:size]
    dense = rng.random((rows, labels)) * (rng.random((rows, labels)) < rng.choice([0.1, 0.4, 0.9]))
    dense[rng.random(rows) < 0.3] = 0
    dense[0, int(rng.integers(labels))] = 0.5
    truth = csr_matrix(dense)
    truth.data[rng.random(truth.nnz) < 0.1] = 0
    truth.data[0] = 0.5
    pairs = np.argwhere(rng.random((rows, labels)) < 0.2)
    points = int(rng.integers(3, 500))
    counts = rng.integers(0, points + 1, labels)
    constants = [(0.5, 0.4), (0.6, 2.6), (0.55, 1.5)][rng.integers(3)]
    return ids, truth, pairs if rng.random() < 0.7 else None, counts, points, constants


@pytest.mark.parametrize("seed", range(20))
def test_agrees_with_the_naive_loops(oracle, seed):
    """Fifty problems for each of the twenty seeds."""
    rng = np.random.default_rng(seed)
    for _ in range(50):
        ids, truth, pairs, counts, points, (A, B) = random_case(rng)
        ks = (1, 2, 3, 5, 8, 100)
        report = evaluate(ids, truth, counts=counts, points=points, A=A, B=B, filter=pairs, ks=ks)
        rankings = oracle.drop_filtered(ids, [] if pairs is None else pairs)
        dense = truth.toarray()
        sets = [{l for l in range(dense.shape[1]) if row[l] > 0} for row in dense]  # noqa: E741
        inverse = oracle.inverse_propensity(counts.tolist(), points, A, B)
        expected = {}
        for k in ks:
            if k <= ids.shape[1] or k in (1, 3, 5):
                values = oracle.measure(rankings, sets, dense.shape[1], inverse, k)
                expected |= {f"{name}@{k}": 100 * value for name, value in values.items()}
        assert report.metrics == pytest.approx(expected, abs=1e-9)
        assert set(name.partition("@")[0] for name in report.metrics) == KEYS


def test_filter_comes_before_the_cut():
    truth = csr_matrix([[0, 0, 1]])
    ids = np.array([[0, 2]])
    assert evaluate(ids, truth, ks=[1]).metrics["P@1"] == 0
    assert evaluate(ids, truth, ks=[1], filter=np.array([[0, 0]])).metrics["P@1"] == 100
    assert ids.tolist() == [[0, 2]]


def test_cut_offs_beyond_the_width_are_left_out_but_for_1_3_5(golden):
    ids, truth, *_ = golden
    report = evaluate(ids, truth, ks=(10, 1, 5, 2, 4))
    assert [name for name in report.metrics if name.startswith("P@")] == ["P@1", "P@2", "P@5"]
    assert report.metrics["P@5"] == pytest.approx(100 * 5 / 15)
    assert report.propensity is None and report.bins == report.groups == ()
    assert not any(name.startswith("PS") for name in report.metrics)


def test_given_weights(golden):
    ids, truth, counts, _ = golden
    report = evaluate(ids, truth, inverse_propensity=np.array([1.711852, 1.942771, 2.302585, 2.302585, 2.725134]))
    assert report.metrics["PSP@1"] == pytest.approx(25.4, abs=1e-4)
    assert report.propensity == {"A": None, "B": None, "points": None}
    assert report.bins == ()
    both = evaluate(ids, truth, counts=counts, inverse_propensity=np.ones(5))
    assert both.metrics["PSP@1"] == pytest.approx(100 / 3) and len(both.bins) == 5


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"ks": (0,)}, SettingError, "k = 0"),
        ({"ks": (1.5,)}, SettingError, "k = 1.5"),
        ({"ks": (True,)}, SettingError, "k = True"),
        ({"ks": (4, 10)}, SettingError, r"no cut-off among \[4, 10\] fits rankings of 3"),
        ({"counts": np.zeros(5, dtype=int)}, SettingError, "counts without points"),
        ({"counts": np.zeros(4, dtype=int), "points": 9}, DataError, "4 label weights for 5 labels"),
        ({"inverse_propensity": np.array([1, 1, 1, 1, np.nan])}, DataError, "finite"),
        ({"filter": np.array([[0, 5]])}, DataError, "filter pair 0 .* 5 labels"),
        ({"ids": np.array([[0, 0], [1, 2], [1, 2]])}, DataError, "duplicate label 0 in the ranking of row 0"),
        ({"truth": csr_matrix((3, 5))}, DataError, "nothing to measure: 3 rows"),
        ({"ids": np.empty((0, 3), dtype=int), "truth": csr_matrix((0, 5))}, DataError, "nothing to measure: 0 rows"),
    ],
)
def test_mistakes_give_one_line(golden, changes, error, words):
    given = {"ids": golden[0], "truth": golden[1]} | changes
    with pytest.raises(error, match=words) as caught:
        evaluate(given.pop("ids"), given.pop("truth"), **given)
    assert "\n" not in str(caught.value)


def test_metrics_load_without_torch():
    code = "import sys, megalabel.metrics; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_names_are_known_before_anything_is_measured():
    ids = np.arange(100)[None, :]
    report = evaluate(ids, csr_matrix(ids == 3), counts=np.ones(100, dtype=np.int64), points=100)
    assert tuple(report.metrics) == METRICS
