"""One vector per label: a student of `auto`, beside its teacher, UniDEC and XR-Linear (can be resumed).

Run: OMP_NUM_THREADS=1 python benchmarks/distil.py --data DIR [DIR ...] [--runs FOLDER] [--seed 0]
The teacher is trained once and the student is distilled from it, both into --runs; a run that is there already is used
as it is. Both are measured on the test rows: quality, and the processor time of a query, all test texts at once and one
by one. The figures of UniDEC come from results/systems.json, those of XR-Linear from results/quality/; the
time of UniDEC is that of a model of its size after one step. Writes results/distil.json after every set.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

from _results import RESULTS, origin

if TYPE_CHECKING:
    from megalabel.data.dataset import Dataset
    from megalabel.model import Model

METRICS = ("P@1", "P@5", "nDCG@5", "PSP@1", "PSP@5")
SINGLE = 200  # test texts searched one by one
TEACHER, STUDENT, UNIDEC = "auto", "distil", "unidec-cpu"


def milliseconds(model: Model, data: Dataset) -> dict[str, float]:
    """Return the processor time of a query in milliseconds: of many at once, and of one by itself (the median)."""
    texts = list(data.test.texts)[:2000]
    model.search(texts[:10], 5)
    start = time.process_time()
    model.search(texts, 5)
    batch = 1000 * (time.process_time() - start) / len(texts)
    single = []
    for text in texts[:SINGLE]:
        start = time.process_time()
        model.search([text], 5)
        single.append(1000 * (time.process_time() - start))
    return {"batch_ms": batch, "single_ms": sorted(single)[len(single) // 2]}


def measured(model: Model, data: Dataset) -> dict[str, Any]:
    """Return quality, speed and size of a model."""
    metrics = model.evaluate(data).metrics
    found = {name: metrics[name] for name in METRICS} | milliseconds(model, data)
    found["parameters"] = sum(value.numel() for value in model.network.parameters())
    print(json.dumps(found), flush=True)
    return found


def spent(make: Any) -> tuple[Any, float]:
    """Return what a function returns and its processor time in seconds."""
    start = time.process_time()
    return make(), time.process_time() - start


def work(source: str, runs: Path, seed: int) -> dict[str, Any]:
    """Train what is missing and measure both models."""
    import megalabel as ml

    data = ml.load(source)
    name = Path(source).name
    teacher_run, student_run = runs / name, runs / f"{name}-student"
    row: dict[str, Any] = {"data": name, "seed": seed, "split": "test", "teacher": TEACHER, "student": STUDENT}
    if not (teacher_run / "model" / "model.json").is_file():
        _, row["teacher_cpu_seconds"] = spent(lambda: ml.train(TEACHER, data, teacher_run, seed=seed))
    if not (student_run / "model" / "model.json").is_file():
        began = student_run.is_dir()  # a part of its time was spent before
        _, seconds = spent(lambda: ml.distil(teacher_run, student_run, seed=seed, resume=began, say=print))
        row |= {} if began else {"student_cpu_seconds": seconds}
    models = {"teacher": teacher_run, "student": student_run}
    row["models"] = {part: measured(ml.Model.load(run), data) for part, run in models.items()}
    with tempfile.TemporaryDirectory() as folder:
        one_step = ["training.max_steps=1", "training.validation=0"]
        sized = ml.train(UNIDEC, data.replace(val=None), Path(folder) / "run", changes=one_step, seed=seed)
        row["models"]["unidec"] = milliseconds(sized, data)
    return row | {
        "threads": os.environ.get("OMP_NUM_THREADS"),
        "load_average": os.getloadavg()[0],
        "commit": origin()["commit"],
        "date": time.strftime("%Y-%m-%d"),
    }


def main() -> int:
    """Run what is missing, set by set, and write after each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="+", required=True, help="data sets: folders or built-in names")
    parser.add_argument("--runs", type=Path, help="where runs are kept; a temporary folder by default")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=RESULTS / "distil.json")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for source in options.data:
            rows = json.loads(options.out.read_text())["rows"] if options.out.exists() else []
            row = work(source, options.runs or Path(folder), options.seed)
            same = [other for other in rows if (other["data"], other["seed"]) != (row["data"], row["seed"])]
            document = {"machine": origin("torch"), "rows": [*same, row]}
            options.out.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
            print(f"wrote {options.out}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
