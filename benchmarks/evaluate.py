"""Read and measure a predictions file of the size of LF-AmazonTitles-131K through the command line.

Run: python benchmarks/evaluate.py
134,835 queries x top 100 over 131,073 labels; prints seconds by part, writes results/evaluate.json, exit code 1
above 20 s for reading and measuring the predictions.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix

from _results import write_result
from megalabel.data import Dataset, Labels, Split, load, save
from megalabel.data.predictions import read_predictions, write_predictions
from megalabel.metrics import measure
from megalabel.types import TopK

ROWS, LABELS, WIDTH, SEED = 134_835, 131_073, 100, 0
WANTED_SECONDS = 20.0


def make_data() -> tuple[Dataset, TopK]:
    """Return a set of that size and rankings without a repeat."""
    rng = np.random.default_rng(SEED)
    size = 1 + rng.poisson(1.3, ROWS)
    row = np.repeat(np.arange(ROWS), size)
    label = (rng.pareto(1.0, size.sum()) * 50).astype(np.int64) % LABELS
    truth = csr_matrix((np.ones(len(row), np.float32), (row, label)), shape=(ROWS, LABELS))
    truth.data[:] = 1.0
    texts = [f"text {i}" for i in range(ROWS)]
    points = Split(texts, truth, [f"q{i}" for i in range(ROWS)], np.stack([np.arange(ROWS), label[:ROWS]], axis=1))
    labels = Labels([f"label {i}" for i in range(LABELS)], [f"l{i}" for i in range(LABELS)])
    step = rng.integers(1, LABELS // WIDTH, (ROWS, 1))
    ids = (rng.integers(LABELS, size=(ROWS, 1)) + np.arange(WIDTH) * step) % LABELS
    scores = np.sort(rng.random((ROWS, WIDTH), dtype=np.float32), axis=1)[:, ::-1]
    return Dataset(train=points, test=points, labels=labels, name="lf-amazontitles-131k-size"), TopK(ids, scores)


def main() -> int:
    """Time reading and measuring in this process, then the whole command."""
    data, predictions = make_data()
    with tempfile.TemporaryDirectory() as folder:
        save(data, f"{folder}/set")
        write_predictions(f"{folder}/p.jsonl", data.test, predictions)
        start = time.perf_counter()
        load(f"{folder}/set")
        loading = time.perf_counter() - start
        start = time.perf_counter()
        ids, _ = read_predictions(f"{folder}/p.jsonl", data.test, LABELS)
        reading = time.perf_counter() - start
        start = time.perf_counter()
        report = measure(data, ids)
        measuring = time.perf_counter() - start
        command = ["evaluate", "--predictions", f"{folder}/p.jsonl", "--data", f"{folder}/set", "--json"]
        start = time.perf_counter()
        done = subprocess.run([sys.executable, "-m", "megalabel", *command], capture_output=True, text=True, check=True)
        whole = time.perf_counter() - start
        size = Path(f"{folder}/p.jsonl").stat().st_size
    same = json.loads(done.stdout)["metrics"] == report.to_dict()["metrics"]
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(f"{ROWS:,} queries x top {WIDTH} over {LABELS:,} labels, a file of {size / 2**20:.0f} MiB")
    print(f"reading the set {loading:.1f} s, reading predictions {reading:.1f} s, all metrics {measuring:.1f} s")
    print(f"the whole command {whole:.1f} s, {peak:.0f} MiB at most, same figures: {same}")
    result = {
        "rows": ROWS,
        "labels": LABELS,
        "width": WIDTH,
        "seed": SEED,
        "load_seconds": loading,
        "read_seconds": reading,
        "measure_seconds": measuring,
        "command_seconds": whole,
        "command_peak_mib": peak,
    }
    write_result("evaluate", result, "orjson")
    return 0 if same and reading + measuring <= WANTED_SECONDS else 1


if __name__ == "__main__":
    sys.exit(main())
