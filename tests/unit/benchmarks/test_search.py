"""The benchmark of search: its vectors, its measure of recall, and one small run of our own kinds."""

import json
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))
search = import_module("search")
peer = import_module("_peers.vector_search")
sys.path.remove(str(BENCHMARKS))


def test_synthetic_vectors_are_of_unit_length_and_in_clusters():
    vectors, queries = search.synthetic(640, 16, 5, seed=0)
    assert vectors.shape == (640, 16) and queries.shape == (5, 16)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)
    assert np.sort(vectors @ vectors[0])[-20] > 0.5
    np.testing.assert_array_equal(search.synthetic(640, 16, 5, seed=0)[0], vectors)


def test_recall_counts_labels_as_good_as_the_last():
    vectors, queries = np.eye(4, dtype=np.float32), np.eye(4, dtype=np.float32)[:2]
    floor = np.array([0.0, 1.0], dtype=np.float32)
    assert peer.recall(vectors, queries, np.array([[0, 3], [1, -1]]), floor) == pytest.approx(3 / 4)


def test_the_smallest_sufficient_effort():
    points = [{"effort": effort, "recall": share} for effort, share in ((1, 0.5), (2, 0.96), (4, 0.97))]
    assert search.at_targets(points) == {"0.95": points[1], "0.99": None}


@pytest.mark.slow
def test_a_small_run(tmp_path, monkeypatch, capsys):
    out = tmp_path / "search.json"
    command = ["search.py", "--exact", "600", "--ann", "600", "--dim", "16", "--queries", "20", "--threads", "1"]
    monkeypatch.setattr(sys, "argv", [*command, "--kinds", "exact", "ivf", "--out", str(out)])
    assert search.main() == 0
    actual = json.loads(out.read_text())
    assert actual["exact"][0]["ratio"]["flat"] > 0
    assert actual["exact"][0]["agree"]["flat_blas"] > 0.9
    (rows,) = actual["approximate"]
    assert rows["vectors"] == "synthetic, clustered"
    assert [row["kind"] for row in rows["rows"]] == ["exact", "ivf"]
    assert rows["rows"][1]["at"]["0.95"]["recall"] >= 0.95
    assert rows["rows"][1]["mapped_mb"] is not None
    assert "recall@10" in capsys.readouterr().out
