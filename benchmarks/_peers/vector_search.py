"""One index over vectors, built and timed in a process of its own: ours, or that of another library.

Run by benchmarks/search.py as REQUEST (JSON: folder, kind, settings, threads, k, efforts) and OUT. The folder holds
vectors.npy [L, d], queries.npy [Q, d] and floor.npy [Q], the k-th best score of each query. A label counts as found
when its score is no worse than that, but for rounding. Libraries are imported before the clock starts.
"""

from __future__ import annotations

import json
import platform
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

SINGLE = 300  # queries asked one by one
ROUNDING = 1e-5
PACKAGES = {"usearch": "usearch", "voyager": "voyager"}  # all else is ours, or faiss by itself


def main() -> None:
    """Build, search with rising effort, then ask single queries."""
    request, out = json.loads(sys.argv[1]), Path(sys.argv[2])
    folder, k = Path(request["folder"]), request["k"]
    vectors, queries = np.load(folder / "vectors.npy"), np.load(folder / "queries.npy")
    build, search = KINDS[request["kind"]](request["threads"])
    before, start = resident_mb(), time.perf_counter()
    index = build(vectors, **request["settings"])
    seconds, memory = time.perf_counter() - start, resident_mb() - before
    floor = np.load(folder / "floor.npy") if request["efforts"] else None
    points = []
    for effort in request["efforts"] or [0]:
        times = []
        for _ in range(request["repeat"]):
            start = time.perf_counter()
            ids = search(index, queries, k, effort)
            times.append(time.perf_counter() - start)
        share = 1.0 if floor is None else recall(vectors, queries, ids, floor)
        points.append({"effort": effort, "recall": share, "queries_per_second": len(queries) / min(times)})
        if share >= request["enough"]:
            break
    good = next((point for point in points if point["recall"] >= 0.95), points[-1])
    waits = []
    for row in range(min(SINGLE, len(queries)) if request["single"] else 0):
        start = time.perf_counter()
        search(index, queries[row : row + 1], k, good["effort"])
        waits.append(1000 * (time.perf_counter() - start))
    name = PACKAGES.get(request["kind"], "faiss-cpu")
    found = {
        "build_seconds": seconds,
        "memory_mb": memory,
        "points": points,
        "single": {"effort": good["effort"], "p50_ms": quantile(waits, 50), "p99_ms": quantile(waits, 99)},
        "versions": {"python": platform.python_version(), name: version(name)},
    }
    out.write_text(json.dumps(found), encoding="utf-8")


def recall(vectors: np.ndarray, queries: np.ndarray, ids: np.ndarray, floor: np.ndarray) -> float:
    """Return the share of the k best labels that were found."""
    scores = np.einsum("qd,qkd->qk", queries, vectors[np.maximum(ids, 0)], optimize=True)
    return float(((ids >= 0) & (scores >= floor[:, None] - ROUNDING)).mean())


def quantile(values: list[float], share: float) -> float | None:
    """Return a percentile, or None of nothing."""
    return float(np.percentile(values, share)) if values else None


def resident_mb() -> float:
    """Return the memory this process holds now, in MB (10^6 bytes)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) * 1024 / 1e6


def ours(kind: str, threads: int) -> tuple[Any, Any]:
    """An index of megalabel."""
    import faiss  # noqa: F401
    import torch

    from megalabel.index import ExactIndex, HnswIndex, IvfIndex

    torch.set_num_threads(threads)

    def build(vectors: np.ndarray, **settings: Any) -> Any:
        rows = torch.from_numpy(vectors)
        if kind == "exact":
            return ExactIndex(rows)
        return (
            HnswIndex.build(rows, threads=threads, **settings) if kind == "hnsw" else IvfIndex.build(rows, **settings)
        )

    def search(index: Any, queries: np.ndarray, k: int, effort: int) -> np.ndarray:
        if effort:
            index.effort = effort
        return index.search(torch.from_numpy(queries), k).ids

    return build, search


def flat(threads: int) -> tuple[Any, Any]:
    """Exact search of faiss."""
    import faiss

    faiss.omp_set_num_threads(threads)

    def build(vectors: np.ndarray) -> Any:
        index = faiss.IndexFlatIP(vectors.shape[1])
        index.add(vectors)
        return index

    return build, lambda index, queries, k, effort: index.search(queries, k)[1]


def usearch(threads: int) -> tuple[Any, Any]:
    """A graph of usearch."""
    from usearch.index import Index

    def build(vectors: np.ndarray, M: int, ef_construction: int) -> Any:
        index = Index(ndim=vectors.shape[1], metric="ip", dtype="f32", connectivity=M, expansion_add=ef_construction)
        index.add(np.arange(len(vectors)), vectors, threads=threads)
        return index

    def search(index: Any, queries: np.ndarray, k: int, effort: int) -> np.ndarray:
        index.expansion_search = effort
        found = index.search(queries, k, threads=threads)
        ids = np.asarray(found.keys).astype(np.int64).reshape(len(queries), -1)
        return np.pad(ids, ((0, 0), (0, k - ids.shape[1])), constant_values=-1)

    return build, search


def voyager(threads: int) -> tuple[Any, Any]:
    """A graph of voyager, which grew out of hnswlib."""
    from voyager import Index, Space

    def build(vectors: np.ndarray, M: int, ef_construction: int) -> Any:
        index = Index(Space.InnerProduct, num_dimensions=vectors.shape[1], M=M, ef_construction=ef_construction)
        index.add_items(vectors, num_threads=threads)
        return index

    def search(index: Any, queries: np.ndarray, k: int, effort: int) -> np.ndarray:
        ids, _ = index.query(queries, k=k, num_threads=threads, query_ef=max(k, effort))
        return np.asarray(ids).astype(np.int64).reshape(len(queries), k)

    return build, search


KINDS = {
    "exact": lambda threads: ours("exact", threads),
    "hnsw": lambda threads: ours("hnsw", threads),
    "ivf": lambda threads: ours("ivf", threads),
    "ivf-pq": lambda threads: ours("ivf", threads),
    "flat": flat,
    "usearch": usearch,
    "voyager": voyager,
}

if __name__ == "__main__":
    main()
