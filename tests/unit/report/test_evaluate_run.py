import numpy as np
import pytest

import megalabel as ml
from megalabel.fusion.calibrate import expected_calibration_error
from megalabel.recipes.load_recipe import make_recipe
from megalabel.report import write_report
from megalabel.report.evaluate_run import BINS, TAILS, _calibration, measure_fusion


def test_metrics_by_tail_equal_those_of_the_model(fused):
    _, model, data = fused
    _, trade_off = measure_fusion(model, model.match(data))
    assert [metrics["tail"] for metrics in trade_off] == list(TAILS)
    before = model.tail
    try:
        for metrics in trade_off:
            model.tail = metrics["tail"]
            measured = model.evaluate(data).metrics
            assert metrics == {
                "tail": model.tail,
                **{name: measured[name] for name in ("P@1", "P@5", "PSP@1", "PSP@5")},
            }
    finally:
        model.tail = before


def test_calibration_counts_correct_labels(fused):
    _, model, data = fused
    calibration, _ = measure_fusion(model, model.match(data))
    best = model.search(data.test.texts, 5, exclude=data.test.excluded())
    probability, correct = [], []
    for row, (ids, scores) in enumerate(zip(best.ids, best.scores, strict=True)):
        truth = set(data.test.targets[row].indices.tolist())
        probability += scores.tolist()
        correct += [float(label in truth) for label in ids.tolist()]
    assert calibration["labels"] == len(probability) == 5 * len(data.test)
    expected = 100 * expected_calibration_error(np.array(probability), np.array(correct), bins=BINS)
    assert calibration["error"] == pytest.approx(expected, abs=1e-4)
    assert sum(part["labels"] * part["observed"] for part in calibration["bins"]) == pytest.approx(100 * sum(correct))
    assert sum(part["labels"] * part["predicted"] for part in calibration["bins"]) == pytest.approx(
        100 * sum(probability), rel=1e-4
    )


def test_bins_by_hand():
    calibration = _calibration(np.array([0.05, 0.95, 0.91, 1.0]), np.array([0.0, 1.0, 0.0, 1.0]))
    first, last = calibration["bins"][0], calibration["bins"][-1]
    assert (first["low"], first["high"], first["labels"], first["observed"]) == (0, 10, 1, 0.0)
    assert (last["labels"], last["observed"]) == (3, pytest.approx(200 / 3))
    assert last["predicted"] == pytest.approx(100 * (0.95 + 0.91 + 1.0) / 3)
    assert [part["labels"] for part in calibration["bins"][1:-1]] == [0] * 8
    assert calibration["error"] == pytest.approx(100 * (0.05 + abs(0.95 + 0.91 + 1.0 - 2)) / 4)


def test_no_calibration_without_fusion(runs, data):
    model = next(iter(runs.values()))
    assert measure_fusion(model, model.match(data)) == (None, [])


def test_samples_mark_relevant_labels(results, data):
    texts = {text: row for row, text in enumerate(data.test.texts)}
    for sample in results[0].samples:
        row = data.test.targets[texts[sample["text"]]]
        truth = {data.labels.texts[label] for label in row.indices}
        right = {label["text"] for label in sample["labels"] if label["relevant"]}
        assert right == truth & {label["text"] for label in sample["labels"]}
        assert set(sample["missed"]) == truth - right
        scores = [label["score"] for label in sample["labels"]]
        assert scores == sorted(scores, reverse=True)


def test_a_run_whose_head_has_candidates_from_another_has_a_report(clean, tmp_path):
    heads = {
        "meta": {"kind": "free", "space": "clusters", "loss": "bce"},
        "classifier": {"kind": "free", "candidates": {"from": "meta", "top": 3}, "loss": "bce"},
    }
    document = {
        "name": "small", "paper": "none", "about": "none", "spaces": {"clusters": {"size": 8}}, "heads": heads,
        "encoder": {"kind": "bag", "source": None, "options": {"dim": 16, "words": 512, "bigrams": 0, "characters": 0}},
        "batching": {"labels": "heads", "batch_size": 64}, "training": {"epochs": 1, "encoder": {"lr": 0.01}},
    }  # fmt: skip
    model = ml.train(make_recipe(document), clean, tmp_path / "run")
    write_report(tmp_path / "run", model, clean)
    assert (tmp_path / "run" / "report.html").is_file()
