"""Batching: the time to cluster all training vectors, and the time to build the pool of one step.

Run: python benchmarks/clustering.py [--rows N] [--sizes 1024 32]
Prints times and real cluster sizes, writes results/clustering.json, and ends with exit
code 1 where 300,000 x 384 take a minute or a pool takes 5 ms.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

import numpy as np
import torch
from scipy import sparse

from _results import write_result
from megalabel.batching import (
    Clustered,
    Mined,
    PoolBuilder,
    Shuffled,
    Some,
    balanced_clusters,
    generator,
)
from megalabel.graphs import _two_means

MOST_SECONDS = 60.0
MOST_MILLISECONDS = 5.0


def make_vectors(rows: int, dim: int) -> torch.Tensor:
    """Return unit vectors of 3,000 topics in 60 fields, with as much noise as topic."""
    rng = generator(0, "vectors")
    fields = rng.standard_normal((60, dim), dtype=np.float32)
    topics = fields[rng.integers(0, 60, 3_000)] + rng.standard_normal((3_000, dim), dtype=np.float32)
    vectors = np.empty((rows, dim), dtype=np.float32)
    for part in np.array_split(vectors, 64):
        part[:] = topics[rng.integers(0, 3_000, len(part))] + 1.4 * rng.standard_normal(part.shape, dtype=np.float32)
        part /= np.linalg.norm(part, axis=1, keepdims=True)
    return torch.from_numpy(vectors)


def similarity(vectors: torch.Tensor, assignment: np.ndarray) -> float:
    """Return the mean cosine of a row to the centre of its cluster."""
    sums = torch.zeros(int(assignment.max()) + 1, vectors.shape[1])
    sums.index_add_(0, torch.from_numpy(assignment), vectors)
    return float(sums.norm(dim=1).sum() / len(vectors))


def memory(field: str) -> float:
    """Return VmRSS (now) or VmHWM (most so far) of this process in MiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1024


def time_clusters(vectors: torch.Tensor, size: int, sample: int | None = None) -> dict[str, object]:
    """Cluster once; ``sample`` overrides how many rows find the centres of a large cluster."""
    usual = _two_means.SAMPLE
    _two_means.SAMPLE = usual if sample is None else sample
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    before, start = memory("VmRSS"), time.perf_counter()
    assignment = balanced_clusters(vectors, size, seed=0)
    seconds, more = time.perf_counter() - start, memory("VmHWM") - before
    _two_means.SAMPLE = usual
    sizes = np.bincount(assignment)
    chance = similarity(vectors, np.random.default_rng(0).permutation(assignment))
    result: dict[str, object] = {
        "size_asked": size,
        "clusters": len(sizes),
        "smallest": int(sizes.min()),
        "largest": int(sizes.max()),
        "centres_from": "all rows" if sample else f"at most {usual:,} rows of a cluster",
        "seconds": round(seconds, 2),
        "more_memory_mib": round(more),
        "mean_similarity": round(similarity(vectors, assignment), 4),
        "mean_similarity_by_chance": round(chance, 4),
    }
    print(", ".join(f"{key} {value}" for key, value in result.items()), flush=True)
    return result


def time_pools(rows: int = 300_000, labels: int = 131_072, batch_size: int = 1_024) -> list[dict[str, object]]:
    """Build pools with 5 labels per row, beta 3, eta 6."""
    rng = generator(0, "pools")
    columns = (labels * rng.random((rows, 5)) ** 2).astype(np.int64)
    targets = sparse.csr_matrix(
        (np.ones(rows * 5, dtype=np.float32), columns.ravel(), np.arange(0, 5 * rows + 1, 5)), shape=(rows, labels)
    )
    targets.sum_duplicates()
    targets.data[:] = 1
    pairs = np.stack([np.arange(rows), rng.integers(0, labels, rows)], axis=1)
    mined = [Mined(rng.integers(0, labels, (rows, 30), dtype=np.int32), eta=6)]
    builders = {
        "beta 3, eta 6": PoolBuilder(targets, positives=Some(3), negatives=mined),
        "beta 3, eta 6, one filter pair per row": PoolBuilder(targets, pairs, positives=Some(3), negatives=mined),
        "beta 3, eta 6, cap 3000, filled": PoolBuilder(
            targets, positives=Some(3), negatives=mined, cap=3_000, fill="positives"
        ),
        "all labels": PoolBuilder(targets, all_labels=True),
    }
    batches = Shuffled(np.arange(rows), batch_size, seed=0).batches(0)
    results = []
    for name, builder in builders.items():
        batch = builder.build(batches[0], rng=generator(0))  # the first one prepares the matrix
        times = []
        for step, batch_rows in enumerate(batches[:200]):
            start = time.perf_counter()
            batch = builder.build(batch_rows, rng=generator(0, "pool", 0, step))
            times.append(1e3 * (time.perf_counter() - start))
        quick, median, slow = np.percentile(times, [5, 50, 95]).round(2).tolist()
        row = {"pool": name, "batch_size": batch_size, "labels": labels, **builder.statistics(batch)}
        results.append({**row, "milliseconds": median, "milliseconds_5%": quick, "milliseconds_95%": slow})
        print(f"pool with {name}: {median} ms ({quick} to {slow}), {row['pool_size']:,.0f} labels", flush=True)
    return results


def time_order(assignment: np.ndarray) -> float:
    """Return the seconds to lay out one epoch of clustered batches."""
    start = time.perf_counter()
    Clustered(assignment, 1_024, seed=0).batches(1)
    return round(time.perf_counter() - start, 3)


def main() -> int:
    """Time both and write the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--dim", type=int, default=384)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_024, 32])
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    load = os.getloadavg()[0]
    pools = time_pools()
    vectors = make_vectors(options.rows, options.dim)
    runs = [time_clusters(vectors, size) for size in options.sizes]
    runs.append(time_clusters(vectors, options.sizes[0], sample=options.rows))
    about = {"rows": options.rows, "dim": options.dim, "threads": options.threads, "load_at_start": round(load, 1)}
    order = time_order(np.arange(options.rows) // 1_024)
    write_result("clustering", {**about, "clusters": runs, "epoch_order_seconds": order, "pools": pools}, "torch")
    slow = float(str(runs[0]["seconds"])) * 300_000 / options.rows
    return 0 if slow < MOST_SECONDS and float(str(pools[0]["milliseconds"])) < MOST_MILLISECONDS else 1


if __name__ == "__main__":
    sys.exit(main())
