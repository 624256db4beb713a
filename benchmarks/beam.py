"""Beam search over a tree of labels beside exact search: how the cost of a query grows with the labels.

Run: python benchmarks/beam.py [--labels 10000 100000 1000000] [--dim 64] [--beam 32] [--threads 1]
Writes results/beam.json. Vectors are synthetic, in clusters; queries lie near labels. Times are those of the processor,
queries in batches, the best of three rounds, in turns with exact search. ``growth`` is what ten times the labels cost:
exact search takes ten times as long, a beam one or two levels more.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from _results import write_result
from search import synthetic

K = 10


def main() -> int:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--labels", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--beam", type=int, default=32)
    parser.add_argument("--queries", type=int, default=1_024)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows: list[dict[str, Any]] = []
    for labels in options.labels:
        rows.append(measure(labels, options))
        if len(rows) > 1:
            before = rows[-2]
            rows[-1]["growth"] = {
                name: rows[-1][name]["milliseconds"] / before[name]["milliseconds"] for name in ("beam", "exact")
            }
        print(describe(rows[-1]), flush=True)
    settings = {name: getattr(options, name) for name in ("dim", "beam", "queries", "threads", "seed")}
    write_result("beam", {**settings, "load": os.getloadavg()[0], "rows": rows}, "torch", "faiss-cpu", out=options.out)
    return 0


def measure(labels: int, options: argparse.Namespace) -> dict[str, Any]:
    """Return build time, recall and time per query over so many labels."""
    from megalabel.index import BeamIndex, ExactIndex, recall

    vectors, queries = (
        torch.from_numpy(part) for part in synthetic(labels, options.dim, options.queries, options.seed)
    )
    start = time.process_time()
    index = BeamIndex.build(vectors, beam=options.beam, seed=options.seed)
    build, exact = time.process_time() - start, ExactIndex(vectors)
    index.search(queries[:2], K)  # compiles
    exact.search(queries[:2], K)
    rounds = [(seconds(lambda: index.search(queries, K)), seconds(lambda: exact.search(queries, K))) for _ in range(3)]
    times = dict(zip(("beam", "exact"), map(min, zip(*rounds, strict=True)), strict=True))
    return {
        "labels": labels,
        "levels": len(index._levels),
        "clusters": index.clusters,
        "products": index._scored(K),
        "build_cpu_seconds": build,
        "recall": recall(index, exact, queries, K),
        **{name: {"milliseconds": 1_000 * took / len(queries)} for name, took in times.items()},
    }


def seconds(work: Callable[[], object]) -> float:
    """Return the processor time of some work."""
    start = time.process_time()
    work()
    return time.process_time() - start


def describe(row: dict[str, Any]) -> str:
    """Return one line on a number of labels."""
    growth = row.get("growth")
    grown = "" if growth is None else f"; {growth['beam']:.2f}x and {growth['exact']:.2f}x the time before"
    beam, exact = row["beam"]["milliseconds"], row["exact"]["milliseconds"]
    return (
        f"{row['labels']:,} labels, {row['levels']} levels, built in {row['build_cpu_seconds']:.0f} s: "
        f"recall@{K} {row['recall']:.3f}, beam {beam:.3f} ms, exact {exact:.3f} ms{grown}"
    )


if __name__ == "__main__":
    sys.exit(main())
