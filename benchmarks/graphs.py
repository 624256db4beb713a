"""Label graphs: time to count and to walk, against a plain Python walk, and memory at the size of 1.3 million labels.

Run: python benchmarks/graphs.py [--data D] [--without-large]
Prints times, writes results/graphs.json, and ends with exit code 1 where counting 1.5 M
cells takes over 2 s, the walk is less than 20 times as fast as the plain one, or the
large case needs more than 8 GiB.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix

import megalabel
from _results import write_result
from megalabel.graphs import cooccurrence, partition, pifa, random_walk

MOST_SECONDS, LEAST_RATIO, MOST_GIB = 2.0, 20.0, 8.0
LARGE = "synthetic:points=2750000,labels=1305265,labels_per_point=22"  # a fifth is test: 2.2 M train points
MIDDLE = (300_000, 131_073, 5)
PLAIN_LABELS = 2_000


def zipf(points: int, labels: int, each: int) -> csr_matrix:
    """Return targets with ``each`` labels a point, frequencies falling as 1 / (rank + 50)."""
    rng = np.random.default_rng(0)
    chance = 1 / (np.arange(labels) + 50.0)
    cells = rng.permutation(labels)[rng.choice(labels, size=(points, each), p=chance / chance.sum())]
    ones = np.ones(cells.size, dtype=np.float32)
    targets = csr_matrix((ones, cells.ravel(), np.arange(0, cells.size + 1, each)), shape=(points, labels))
    targets.sum_duplicates()
    targets.data[:] = 1
    return targets


def lists(matrix: csr_matrix) -> list[list[int]]:
    """Return the columns of each row."""
    return [matrix.indices[a:b].tolist() for a, b in zip(matrix.indptr[:-1], matrix.indptr[1:], strict=True)]


def plain_walk(
    labels_of: list[list[int]], points_of: list[list[int]], label: int, rng: random.Random
) -> dict[int, int]:
    """Walk 400 hops from one label with reset 0.8, as one would write it down."""
    visits: dict[int, int] = {}
    here = label
    for _ in range(400):
        here = rng.choice(labels_of[rng.choice(points_of[here])])
        visits[here] = visits.get(here, 0) + 1
        if rng.random() < 0.8:
            here = label
    return visits


def seconds(work, tries: int = 3) -> float:
    """Return the fastest of a few runs."""
    times = []
    for _ in range(tries):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def measure(targets: csr_matrix) -> dict[str, object]:
    """Time counting, walking and, on a sample of labels, the plain walk."""
    counting = seconds(lambda: cooccurrence(targets))
    with_top = seconds(lambda: cooccurrence(targets, top=20))
    walking = seconds(lambda: random_walk(targets))
    walkable = targets.copy()  # both leave out labels of more than 500 points
    walkable.data *= (np.bincount(targets.indices, minlength=targets.shape[1]) <= 500)[targets.indices]
    walkable.eliminate_zeros()
    labels_of, points_of = lists(walkable), lists(walkable.T.tocsr())
    some = [label for label in range(len(points_of)) if points_of[label]][:PLAIN_LABELS]
    rng = random.Random(0)
    plain = seconds(lambda: [plain_walk(labels_of, points_of, label, rng) for label in some], tries=2) / len(some)
    walked = sum(map(bool, points_of))
    graph = cooccurrence(targets)
    row = {
        "points": targets.shape[0],
        "labels": targets.shape[1],
        "cells": int(targets.nnz),
        "edges": int(graph.nnz),
        "count_seconds": round(counting, 3),
        "count_top_20_seconds": round(with_top, 3),
        "walk_seconds": round(walking, 3),
        "walk_microseconds_per_label": round(1e6 * walking / walked, 2),
        "plain_walk_microseconds_per_label": round(1e6 * plain, 1),
        "walk_ratio": round(plain * walked / walking, 1),
    }
    print(", ".join(f"{key} {value}" for key, value in row.items()), flush=True)
    return row


def measure_partition(targets: csr_matrix) -> dict[str, object]:
    """Time clusters of 100 labels on the mean of their points, for sparse features."""
    rng = np.random.default_rng(0)
    points, words, each = targets.shape[0], 40_000, 8
    columns = (words * rng.random((points, each)) ** 3).astype(np.int64)
    shape = (points, words)
    ones = np.ones(columns.size, dtype=np.float32)
    features = csr_matrix((ones, columns.ravel(), np.arange(0, columns.size + 1, each)), shape=shape)
    start = time.perf_counter()
    vectors = pifa(features, targets)
    means = time.perf_counter() - start
    cluster = partition(vectors, size=100, seed=0)
    both = time.perf_counter() - start
    row = {
        "labels": targets.shape[1],
        "cells": int(vectors.nnz),
        "clusters": int(cluster.max()) + 1,
        "pifa_seconds": round(means, 2),
        "partition_seconds": round(both - means, 2),
    }
    print(", ".join(f"{key} {value}" for key, value in row.items()), flush=True)
    return row


def memory(field: str) -> float:
    """Return VmRSS (now) or VmHWM (most so far) of this process in GiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 2**20


def large() -> None:
    """Count the large case in this process and print what it took as JSON."""
    data = megalabel.load(LARGE)
    targets = data.train.targets
    before = memory("VmRSS")
    start = time.perf_counter()
    graph = cooccurrence(targets)
    took = time.perf_counter() - start
    row = {
        "data": LARGE,
        "points": targets.shape[0],
        "labels": targets.shape[1],
        "cells": int(targets.nnz),
        "edges": int(graph.nnz),
        "count_seconds": round(took, 1),
        "gib_before": round(before, 2),
        "peak_gib": round(memory("VmHWM"), 2),
    }
    print(json.dumps(row))


def measure_large() -> dict[str, object]:
    """Return what the large case took in a process of its own."""
    done = subprocess.run([sys.executable, __file__, "--large"], check=True, stdout=subprocess.PIPE, text=True)
    row: dict[str, object] = json.loads(done.stdout)
    print(", ".join(f"{key} {value}" for key, value in row.items()), flush=True)
    return row


def main() -> int:
    """Time all of it and write the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", help="also measure this data set")
    parser.add_argument("--without-large", action="store_true", help="leave out the case of minutes")
    parser.add_argument("--large", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.large:
        large()
        return 0
    load = round(os.getloadavg()[0], 1)
    targets = zipf(*MIDDLE)
    document: dict[str, object] = {"load_at_start": load, "middle": measure(targets)}
    document["partition"] = measure_partition(zipf(60_000, 30_000, 5))
    if options.data:
        document["data"] = {"name": Path(options.data).name, **measure(megalabel.load(options.data).train.targets)}
    good = document["middle"]["count_seconds"] <= MOST_SECONDS and document["middle"]["walk_ratio"] >= LEAST_RATIO
    if not options.without_large:
        document["large"] = measure_large()
        good = good and document["large"]["peak_gib"] <= MOST_GIB
    write_result("graphs", document)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
