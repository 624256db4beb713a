import numpy as np
import pytest

from megalabel.fusion.calibrate import expected_calibration_error
from megalabel.report.measure_fusion import BINS, TAILS, _calibration, measure_fusion


def test_tails_are_what_the_model_does_with_them(fused):
    _, model, data = fused
    _, trade_off = measure_fusion(model, data, "test")
    assert [one["tail"] for one in trade_off] == list(TAILS)
    before = model.tail
    try:
        for one in trade_off:
            model.tail = one["tail"]
            measured = model.evaluate(data).metrics
            assert one == {"tail": model.tail, **{name: measured[name] for name in ("P@1", "P@5", "PSP@1", "PSP@5")}}
    finally:
        model.tail = before


def test_probabilities_are_counted_against_the_truth(fused):
    _, model, data = fused
    found, _ = measure_fusion(model, data, "test")
    best = model.search(data.test.texts, 5, exclude=data.test.excluded())
    chance, right = [], []
    for row, (ids, scores) in enumerate(zip(best.ids, best.scores, strict=True)):
        truth = set(data.test.targets[row].indices.tolist())
        chance += scores.tolist()
        right += [float(label in truth) for label in ids.tolist()]
    assert found["labels"] == len(chance) == 5 * len(data.test)
    expected = 100 * expected_calibration_error(np.array(chance), np.array(right), bins=BINS)
    assert found["error"] == pytest.approx(expected, abs=1e-4)
    assert sum(part["labels"] * part["observed"] for part in found["bins"]) == pytest.approx(100 * sum(right))
    assert sum(part["labels"] * part["predicted"] for part in found["bins"]) == pytest.approx(
        100 * sum(chance), rel=1e-4
    )


def test_bins_by_hand():
    found = _calibration(np.array([0.05, 0.95, 0.91, 1.0]), np.array([0.0, 1.0, 0.0, 1.0]))
    first, last = found["bins"][0], found["bins"][-1]
    assert (first["low"], first["high"], first["labels"], first["observed"]) == (0, 10, 1, 0.0)
    assert (last["labels"], last["observed"]) == (3, pytest.approx(200 / 3))
    assert last["predicted"] == pytest.approx(100 * (0.95 + 0.91 + 1.0) / 3)
    assert [part["labels"] for part in found["bins"][1:-1]] == [0] * 8
    assert found["error"] == pytest.approx(100 * (0.05 + abs(0.95 + 0.91 + 1.0 - 2)) / 4)


def test_nothing_without_fusion(runs, data):
    assert measure_fusion(next(iter(runs.values())), data, "test") == (None, [])
