"""Search over many labels: exact beside faiss's own, and approximate indexes beside those of other libraries.

Run: python benchmarks/search.py [--model RUN] [--data pydocs] [--exact 131072 1305265] [--ann 0 131072]
Writes results/search.json. Every index is built and asked in a process of its own, others in an environment of their
own, with the same vectors, queries, threads and measure of recall.

Exact: queries per second at batch 256, k = 100, beside faiss IndexFlatIP on the same vectors. Approximate: seconds and
memory to build, queries per second at recall@10 of 0.95 and 0.99, and the wait of a single query. ``--ann 0`` is for
all labels of the trained model; a number above what the model has, and every number under ``--exact``, is met by
synthetic vectors in clusters, and the result says so.
"""

from __future__ import annotations

import argparse
import os
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
}
OTHERS = {"usearch": "usearch", "voyager": "voyager"}  # and the package each needs


def main() -> int:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--data", default="pydocs", help="of the model's queries; its labels, where there is no --model"
    )
    parser.add_argument("--model", help="folder of a run or model; without, --recipe is trained on --data")
    parser.add_argument("--recipe", default="unidec-cpu")
    parser.add_argument("--exact", type=int, nargs="*", default=[131_072, 1_305_265], help="numbers of labels")
    parser.add_argument("--ann", type=int, nargs="*", default=[0, 131_072], help="numbers of labels; 0: the model's")
    parser.add_argument("--kinds", nargs="*", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--dim", type=int, default=384, help="of synthetic vectors")
    parser.add_argument("--queries", type=int, default=1_000)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    exact = [measure_exact(labels, options) for labels in options.exact]
    approximate = []
    trained = trained_vectors(options) if options.model or 0 in options.ann else None
    for labels in options.ann:
        name, vectors, queries = some_vectors(labels, trained, options)
        approximate.append(measure_approximate(name, vectors, queries, options))
    document = {"threads": options.threads, "seed": options.seed, "exact": exact, "approximate": approximate}
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
        asked = {"folder": place, "settings": {}, "k": TOP, "efforts": [], "repeat": 3, "enough": 2.0}
        rows = {kind: child(kind, {**asked, "single": kind == "exact"}, options) for kind in ("exact", "flat")}
    ours, theirs = (rows[kind]["points"][0]["queries_per_second"] for kind in ("exact", "flat"))
    wait = rows["exact"]["single"]
    print(
        f"exact, {labels:,} labels, batch {BATCH}, k {TOP}: {ours:,.0f} queries/s, faiss FlatIP {theirs:,.0f} "
        f"({ours / theirs:.1f}x); one query p50 {wait['p50_ms']:.2f} ms, p99 {wait['p99_ms']:.2f} ms",
        flush=True,
    )
    return {
        "vectors": f"synthetic, clustered, {options.dim} numbers", "labels": labels, "dim": options.dim, "batch": BATCH,
        "k": TOP, "queries_per_second": ours, "faiss_flat_queries_per_second": theirs, "ratio": ours / theirs,
        "single": {name: wait[name] for name in ("p50_ms", "p99_ms")},
    }  # fmt: skip


def measure_approximate(
    name: str, vectors: np.ndarray, queries: np.ndarray, options: argparse.Namespace
) -> dict[str, Any]:
    """Build every kind of index over the same vectors and ask it the same queries."""
    import torch

    from megalabel.index import ExactIndex

    print(f"{name}: {len(vectors):,} labels, {vectors.shape[1]} numbers, {len(queries):,} queries", flush=True)
    rows = []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        np.save(folder / "vectors.npy", vectors)
        np.save(folder / "queries.npy", queries)
        found = ExactIndex(torch.from_numpy(vectors)).search(torch.from_numpy(queries), K)
        np.save(folder / "floor.npy", found.scores[:, -1])
        for kind in options.kinds:
            settings, effort = KINDS[kind]
            asked = {
                "folder": place, "settings": settings, "k": K, "efforts": EFFORTS[effort] if effort else [],
                "repeat": 2, "enough": 0.995, "single": True,
            }  # fmt: skip
            try:
                row = child(kind, asked, options)
            except (NoEnvironment, RowFailed) as error:
                print(f"  {kind} is left out: {error}", flush=True)
                continue
            row = {"kind": kind, "settings": settings, **row, "at": at_targets(row["points"])}
            rows.append(row)
            print(f"  {told(row)}", flush=True)
    return {"vectors": name, "labels": len(vectors), "dim": vectors.shape[1], "queries": len(queries), "rows": rows}


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


def told(row: dict[str, Any]) -> str:
    """Return one line on an index."""
    parts = [
        f"{target}: {point['queries_per_second']:,.0f} q/s (effort {point['effort']})"
        if point
        else f"{target}: not met"
        for target, point in row["at"].items()
    ]
    wait = row["single"]
    return (
        f"{row['kind']:8} built in {row['build_seconds']:.1f} s, {row['memory_mb']:,.0f} MB; recall@{K} "
        f"{', '.join(parts)}; one query p50 {wait['p50_ms']:.2f} ms, p99 {wait['p99_ms']:.2f} ms"
    )


def trained_vectors(options: argparse.Namespace) -> tuple[str, np.ndarray, np.ndarray]:
    """Return the label vectors of a trained model and the vectors of test queries."""
    import megalabel as ml
    from megalabel.training.vectors import fold_labels

    data = ml.load(options.data)
    if options.model:
        model, name = ml.Model.load(options.model), f"trained, {Path(options.model).name}"
    else:
        model, name = ml.train(options.recipe, data), f"trained, {options.recipe} on {Path(options.data).name}"
    vectors, _ = fold_labels(model.label_side(), model.chosen("all"))
    queries = model.encode(data.test.texts[: options.queries])
    return name, np.ascontiguousarray(vectors.numpy()), np.ascontiguousarray(queries)


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
