"""What a study has still to run: nothing twice, estimates from what steps took, and a stop in time."""

import json
import sys
from argparse import Namespace
from importlib import import_module
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))
jobs, rows = import_module("_jobs"), import_module("_rows")
sys.path.remove(str(BENCHMARKS))

ROW = rows.Row("a", "dexml-cpu")
LONGER = rows.Row("b", "dexml-cpu", ("training.epochs=10",))


def test_rows_that_are_there_and_repeated_ones_are_left_out(tmp_path):
    path = tmp_path / "study.json"
    path.write_text(json.dumps({"rows": [rows.key_of(ROW, "x/set", 0) | {"cpu_minutes": 20}]}))
    asked = [jobs.Job("x/set", seed, row) for seed in (0, 1) for row in (ROW, LONGER, LONGER)]
    left = jobs.missing(path, asked, {"cpu_minutes": 20})
    assert [(job.row.name, job.seed) for job in left] == [("b", 0), ("a", 1), ("b", 1)]
    assert len(jobs.missing(path, asked, {"cpu_minutes": 5})) == 4


def test_steps_count_label_texts_and_the_run_before():
    assert jobs.steps_of(ROW, 10_240, 1_024) == 45  # 5 epochs of 9 batches
    both = rows.Row("c", "dexml-cpu", ("augment=gandalf",))
    assert jobs.steps_of(both, 10_240, 1_024) == 50
    assert jobs.steps_of(rows.Row("d", "dexml-cpu", (), ROW), 10_240, 1_024) == 90


def test_estimates_prefer_the_same_data():
    known = [
        {"recipe": "dexml-cpu", "data": "set", "cpu_seconds": 90.0, "steps": 45},
        {"recipe": "unidec-cpu", "data": "set", "cpu_seconds": 900.0, "steps": 9},
        {"recipe": "dexml-cpu", "data": "other", "cpu_seconds": 45.0, "steps": 45},
    ]
    size = {"set": (10_240, 1_024), "other": (10_240, 1_024), "new": (10_240, 1_024)}
    asked = [jobs.Job(data, 0, ROW) for data in ("set", "other", "new")]
    assert jobs.estimates(asked, known, size) == [90.0, 45.0, pytest.approx(67.5)]
    assert jobs.estimates([jobs.Job("set", 0, LONGER)], known, size, 100.0) == [100.0]
    assert jobs.estimates(asked[:1], [], size) == [None]


def test_nothing_is_started_after_the_time(capsys):
    started = []
    asked = [jobs.Job("set", seed, ROW) for seed in range(3)]

    def run(job):
        started.append(job.seed)
        return "done"

    assert jobs.run_jobs("study", asked, Namespace(dry=False, minutes=-1.0), run) == 0
    assert started == [] and "3 rows are left" in capsys.readouterr().out
    assert jobs.run_jobs("study", asked, Namespace(dry=False, minutes=None), run) == 0
    assert started == [0, 1, 2]
