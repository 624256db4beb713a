"""Search over many labels: exact beside faiss's own, and approximate indexes beside those of other libraries.

Run: python benchmarks/search.py [--model RUN] [--data pydocs] [--exact 131072 1305265] [--ann 0 1305265]
Writes results/search.json. Every index is built and asked in a process of its own, others in an environment of their
own, with the same vectors, queries, threads and measure of recall. Times are those of the processor, one thread by
default, so that other work on the machine does not count; wall-clock times are beside them.

Exact: queries per second at batch 256, k = 100, beside faiss IndexFlatIP on the same vectors, in turns: as it comes,
and with its switch to matrix products (``distance_compute_blas_threshold``) turned so that they are used. Approximate:
seconds and memory to build, queries per second at recall@10 of 0.95 and 0.99, and the time of a single query.
``--ann 0`` is for all labels of the trained model; a number above what the model has, and every number under
``--exact``, is met by synthetic vectors in clusters, and the result says so. Over half a million labels, graphs are
left out: they take long.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from _peers.environment import NoEnvironment, environment
from _results import write_result
from _rows import RowFailed, in_own_process

SCRIPT = Path(__file__).parent / "_peers" / "vector_search.py"
BATCH, TOP = 256, 100  # exact
K = 10  # approximate
TARGETS = (0.95, 0.99)
MANY = 500_000  # labels over which only some kinds are built, and exact search is timed less often
SINGLE = 300  # queries asked one by one
GRAPH = {"M": 16, "ef_construction": 100}
EFFORTS = {
    "ef": [10, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 4096],
    "nprobe": [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048, 4096],
}
KINDS: dict[str, tuple[dict[str, Any], str | None]] = {  # settings, and what its effort is
    "exact": ({}, None),
    "hnsw": (GRAPH, "ef"),
    "ivf": ({}, "nprobe"),
    "ivf-pq": ({"pq": 48}, "nprobe"),
    "usearch": (GRAPH, "ef"),
    "voyager": (GRAPH, "ef"),
    "hnswlib": (GRAPH, "ef"),
}
QUICK = ("exact", "ivf-pq")  # to build
OTHERS = {"usearch": "usearch", "voyager": "voyager", "hnswlib": "hnswlib"}  # and the package each needs


def main() -> int:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--data", default="pydocs", help="what the model is asked; what it is trained on, without --model"
    )
    parser.add_argument("--model", help="folder of a run or model; without, --recipe is trained on --data")
    parser.add_argument("--recipe", default="unidec-cpu")
    parser.add_argument("--heads", default="dual", help="whose vectors are searched: all, or one head by name")
    parser.add_argument("--exact", type=int, nargs="*", default=[131_072, 1_305_265], help="numbers of labels")
    parser.add_argument("--ann", type=int, nargs="*", default=[0, 1_305_265], help="numbers of labels; 0: the model's")
    parser.add_argument("--kinds", nargs="*", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--dim", type=int, default=384, help="of synthetic vectors")
    parser.add_argument("--queries", type=int, default=1_000)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    load = os.getloadavg()[0]
    exact = [measure_exact(labels, options) for labels in options.exact]
    approximate = []
    trained = trained_vectors(options) if options.model or 0 in options.ann else None
    for labels in options.ann:
        name, vectors, queries = some_vectors(labels, trained, options)
        approximate.append(measure_approximate(name, vectors, queries, options))
    around = {"threads": options.threads, "seed": options.seed, "load": [load, os.getloadavg()[0]]}
    document = {**around, "exact": exact, "approximate": approximate}
    write_result("search", document, "torch", "faiss-cpu", "numba", out=options.out)
    return 0


def measure_exact(labels: int, options: argparse.Namespace) -> dict[str, Any]:
    """Time exact search beside that of faiss."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        vectors, queries = synthetic(labels, options.dim, BATCH, options.seed)
        np.save(folder / "vectors.npy", vectors)
        np.save(folder / "queries.npy", queries)
        del vectors
        asked = {"folder": place, "k": TOP, "repeat": 2 if labels > MANY else 5, "single": singles(labels)}
        figures = child("flat", asked, options)
    rounds = figures.pop("rounds")
    speed = {name: BATCH / min(one[0] for one in times) for name, times in rounds.items()}
    wall = {name: BATCH / min(one[1] for one in times) for name, times in rounds.items()}
    ratio = {
        name: statistics.median(theirs[0] / ours[0] for theirs, ours in zip(rounds[name], rounds["exact"], strict=True))
        for name in ("flat", "flat_blas")
    }
    wait = figures["single"]["exact"]
    print(
        f"exact, {labels:,} labels, batch {BATCH}, k {TOP}: {speed['exact']:,.0f} queries/s; faiss FlatIP "
        f"{speed['flat']:,.0f} ({ratio['flat']:.1f}x), with matrix products {speed['flat_blas']:,.0f} "
        f"({ratio['flat_blas']:.2f}x); one query p50 {wait['p50_ms']:.2f} ms, p99 {wait['p99_ms']:.2f} ms",
        flush=True,
    )
    return {
        "vectors": "synthetic, clustered", "labels": labels, "dim": options.dim, "batch": BATCH, "k": TOP,
        "queries_per_second": speed, "queries_per_wall_second": wall, "ratio": ratio, **figures,
    }  # fmt: skip


def measure_approximate(
    name: str, vectors: np.ndarray, queries: np.ndarray, options: argparse.Namespace
) -> dict[str, Any]:
    """Build every kind of index over the same vectors and ask it the same queries."""
    import torch

    from megalabel.index import ExactIndex

    shape = vectors.shape
    print(f"{name}: {shape[0]:,} labels, {shape[1]} numbers, {len(queries):,} queries", flush=True)
    rows = []
    torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        np.save(folder / "vectors.npy", vectors)
        np.save(folder / "queries.npy", queries)
        top = ExactIndex(torch.from_numpy(vectors)).search(torch.from_numpy(queries), K)
        np.save(folder / "floor.npy", top.scores[:, -1])
        del vectors, top
        for kind in [kind for kind in options.kinds if shape[0] <= MANY or kind in QUICK]:
            settings, effort = KINDS[kind]
            asked = {
                "folder": place, "settings": settings, "k": K, "efforts": EFFORTS[effort] if effort else [],
                "repeat": 2, "enough": 0.995, "single": singles(shape[0]) if kind == "exact" else SINGLE,
            }  # fmt: skip
            try:
                row = child(kind, asked, options)
            except (NoEnvironment, RowFailed) as error:
                print(f"  {kind} is left out: {error}", flush=True)
                continue
            row = {"kind": kind, "settings": settings, **row, "at": at_targets(row["points"])}
            rows.append(row)
            print(f"  {describe(row)}", flush=True)
    return {"vectors": name, "labels": shape[0], "dim": shape[1], "queries": len(queries), "rows": rows}


def singles(labels: int) -> int:
    """Return how many queries are asked one by one of an exact search."""
    return SINGLE // 5 if labels > MANY else SINGLE


def child(kind: str, request: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    """Run one index in a process of its own."""
    variables = {f"{name}_NUM_THREADS": str(options.threads) for name in ("OMP", "OPENBLAS", "MKL")}
    python = sys.executable
    if kind in OTHERS:
        python = str(environment(OTHERS[kind], [OTHERS[kind], "numpy"]))
        variables["PYTHONPATH"] = ""
    asked = {**request, "kind": kind, "threads": options.threads}
    return in_own_process([python, str(SCRIPT)], asked, variables={**variables, "MEGALABEL_PROGRESS": "0"}, quiet=True)


def at_targets(points: list[dict[str, Any]]) -> dict[str, dict[str, Any] | None]:
    """Return, for each recall asked for, the least effort that reaches it, or None."""
    return {str(target): next((p for p in points if p["recall"] >= target), None) for target in TARGETS}


def describe(row: dict[str, Any]) -> str:
    """Return one line on an index."""
    parts = [
        f"{target}: {point['queries_per_second']:,.0f} q/s (effort {point['effort']})"
        if point
        else f"{target}: not met"
        for target, point in row["at"].items()
    ]
    wait = row["single"]
    mapped = "" if row["mapped_mb"] is None else f" ({row['mapped_mb']:,.0f} MB mapped)"
    return (
        f"{row['kind']:8} built in {row['build_seconds']:.1f} s, {row['memory_mb']:,.0f} MB{mapped}; recall@{K} "
        f"{', '.join(parts)}; one query p50 {wait['p50_ms']:.3f} ms, p99 {wait['p99_ms']:.3f} ms"
    )


def trained_vectors(options: argparse.Namespace) -> tuple[str, np.ndarray, np.ndarray]:
    """Return the label vectors of a trained model and the vectors of test queries."""
    import megalabel as ml
    from megalabel.network.vectors import fold_labels

    data = ml.load(options.data)
    if options.model:
        model = ml.Model.load(options.model, exact=True)
        name = f"trained, {model.recipe.name} on {data.name}"
    else:
        model, name = ml.train(options.recipe, data), f"trained, {options.recipe} on {Path(options.data).name}"
    vectors, _ = fold_labels(model.label_side(), model.chosen(options.heads))
    queries = model.encode(data.test.texts[: options.queries], heads=options.heads)
    name = f"{name}, {options.heads}"
    return name, np.ascontiguousarray(vectors.detach().numpy()), np.ascontiguousarray(queries)


def some_vectors(
    labels: int, trained: tuple[str, np.ndarray, np.ndarray] | None, options: argparse.Namespace
) -> tuple[str, np.ndarray, np.ndarray]:
    """Return trained vectors where there are as many, else synthetic ones."""
    if trained is not None and labels <= len(trained[1]):
        name, vectors, queries = trained
        return name, vectors[: labels or len(vectors)], queries
    return "synthetic, clustered", *synthetic(labels, options.dim, options.queries, options.seed)


def synthetic(labels: int, dim: int, queries: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return unit vectors around random centres, 64 a centre, and queries near labels; made block by block."""
    rng = np.random.default_rng(seed)
    centres = unit(rng.standard_normal((max(1, labels // 64), dim), dtype=np.float32))
    vectors = np.empty((labels, dim), dtype=np.float32)
    for start in range(0, labels, 65_536):
        part = vectors[start : start + 65_536]
        near = centres[rng.integers(len(centres), size=len(part))]
        part[:] = unit(near + rng.standard_normal(part.shape, dtype=np.float32) * np.float32(0.8 / dim**0.5))
    chosen = vectors[rng.integers(labels, size=queries)]
    return vectors, unit(chosen + rng.standard_normal(chosen.shape, dtype=np.float32) * np.float32(0.5 / dim**0.5))


def unit(rows: np.ndarray) -> np.ndarray:
    """Scale rows to length 1."""
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


if __name__ == "__main__":
    sys.exit(main())
