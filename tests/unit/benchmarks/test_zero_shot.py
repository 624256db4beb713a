"""The benchmark of added labels: what it holds out and what it counts."""

import json
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from megalabel.data.dataset import Dataset

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))
zero_shot = import_module("zero_shot")
sys.path.remove(str(BENCHMARKS))

DATA = Dataset.from_lists(
    train=[("red shoes", [0, 2]), ("blue hat", [1]), ("only new", [2]), ("green", [0])],
    test=[("shoes", [0, 2]), ("hat", [2])],
    labels=["red", "blue", "green"],
)


def test_new_labels_occur_in_test_rows():
    assert zero_shot.new_labels(DATA, seed=0).tolist() in ([0], [2])
    assert zero_shot.new_labels(DATA, seed=3).tolist() == zero_shot.new_labels(DATA, seed=3).tolist()


def test_nothing_of_a_new_label_is_left_in_train():
    less = zero_shot.without(DATA, np.array([2]))
    assert less.labels.texts == ["red", "blue"]
    assert list(less.train.texts) == ["red shoes", "blue hat"]  # one row had no other label, one the label's own text
    assert less.train.targets.toarray().tolist() == [[1, 0], [0, 1]]
    assert list(less.test.texts) == ["shoes"]


def test_filter_pairs_follow_their_labels():
    part = DATA.test.__class__(DATA.test.texts, DATA.test.targets, DATA.test.uids, np.array([[0, 1], [1, 0]]))
    moved = zero_shot.narrowed(part, np.array([2, 0]))
    assert moved.filter.tolist() == [[1, 1]]
    assert moved.targets.toarray().tolist() == [[1, 1], [1, 0]]


def test_recall_is_over_pairs_of_row_and_label():
    targets = sparse.csr_matrix(np.array([[1, 0, 1], [0, 1, 1]]))
    actual = zero_shot.measure(np.array([[2, 0, 1], [0, 1, 2]]), targets, np.array([2]))
    assert (actual["R@1"], actual["others R@1"], actual["R@10"]) == (50.0, 0.0, 100.0)
    assert actual["places"] == pytest.approx(100 / 3)


@pytest.mark.slow
def test_a_small_run(tmp_path, monkeypatch, capsys):
    small = ["encoder.source=null", "encoder.options={dim: 8, words: 64, bigrams: 0, characters: 0}"]
    small += ["training.epochs=1", "batching.batch_size=32"]
    out = tmp_path / "zero_shot.json"
    command = ["zero_shot.py", "--data", "synthetic:points=200,labels=30", "--out", str(out), "--recipes", "unidec-cpu"]
    monkeypatch.setattr(sys, "argv", [*command, *(part for change in small for part in ("--set", change))])
    assert zero_shot.main() == 0 and zero_shot.main() == 0
    rows = json.loads(out.read_text())["rows"]
    assert [row["way"] for row in rows] == ["trained", "added"]  # the second run found both there
    assert capsys.readouterr().out.count("places") == 4
