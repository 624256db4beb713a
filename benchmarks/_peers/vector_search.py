"""One index over vectors, built and timed in a process of its own: ours, or that of another library.

Run by benchmarks/search.py as REQUEST (JSON: folder, kind, settings, threads, k, efforts) and OUT. The folder holds
vectors.npy [L, d], queries.npy [Q, d] and floor.npy [Q], the k-th best score of each query. A label counts as found
when its score is no worse than that, but for rounding. Libraries are imported before the clock starts.

Times are those the processor spent on this process: other work on the machine does not count. Wall-clock
seconds are beside them. Memory is what the process holds beyond what it held before the vectors were read.
"""

from __future__ import annotations

import ctypes
import gc
import json
import platform
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

ROUNDING = 1e-5
PACKAGES = {"usearch": "usearch", "voyager": "voyager", "hnswlib": "hnswlib"}  # all else is ours, or faiss by itself


def main() -> None:
    """Build, search with rising effort, then ask single queries."""
    request, out = json.loads(sys.argv[1]), Path(sys.argv[2])
    result = compare_exact(request) if request["kind"] == "flat" else measure(request)
    out.write_text(json.dumps(result), encoding="utf-8")


def measure(request: dict[str, Any]) -> dict[str, Any]:
    """Measure one index."""
    folder, k = Path(request["folder"]), request["k"]
    queries = np.load(folder / "queries.npy")
    build, search = KINDS[request["kind"]](request["threads"])
    before, held = resident_mb(), [np.load(folder / "vectors.npy")]
    seconds, index = timed(lambda: build(held[0], **request["settings"]))
    held.clear()
    memory = given_back() - before
    vectors = np.load(folder / "vectors.npy", mmap_mode="r")
    mapped = None
    if hasattr(index, "save") and hasattr(index, "removed"):  # one of ours: what it holds once it is read from disk
        index.save(folder / request["kind"])
        del index
        index, mapped = loaded(folder / request["kind"], queries, k)
    floor = np.load(folder / "floor.npy") if request["efforts"] else None
    points = []
    for effort in request["efforts"] or [0]:
        times, ids = [], np.empty((0, k), dtype=np.int64)
        for _ in range(request["repeat"]):
            spent, ids = timed(lambda effort=effort: search(index, queries, k, effort))
            times.append(spent)
        share = 1.0 if floor is None else recall(vectors, queries, ids, floor)
        cpu, wall = (min(one[at] for one in times) for at in (0, 1))
        speed = {"queries_per_second": len(queries) / cpu, "queries_per_wall_second": len(queries) / wall}
        points.append({"effort": effort, "recall": share, **speed})
        if share >= request["enough"]:
            break
    good = next((point for point in points if point["recall"] >= 0.95), points[-1])
    few = queries[: request["single"]]
    name = PACKAGES.get(request["kind"], "faiss-cpu")
    return {
        "build_seconds": seconds[0],
        "build_wall_seconds": seconds[1],
        "memory_mb": memory,
        "mapped_mb": mapped,
        "points": points,
        "single": {"effort": good["effort"], **waits(lambda row: search(index, row, k, good["effort"]), few)},
        "versions": {"python": platform.python_version(), name: version(name)},
    }


def loaded(folder: Path, queries: np.ndarray, k: int) -> tuple[Any, float]:
    """Return an index read from disk, and the MB it holds beside what is mapped, after a search."""
    import torch

    from megalabel.index import load_index

    given_back()
    before = resident_mb("RssAnon:")
    index = load_index(folder)
    index.search(torch.from_numpy(queries), k)
    return index, given_back("RssAnon:") - before


def compare_exact(request: dict[str, Any]) -> dict[str, Any]:
    """Time exact search beside that of faiss, round by round, in one process."""
    import faiss

    folder, k = Path(request["folder"]), request["k"]
    vectors, queries = np.load(folder / "vectors.npy"), np.load(folder / "queries.npy")
    build, ask = ours("exact", request["threads"])
    index, theirs = build(vectors), flat(request["threads"])(vectors)
    shipped = faiss.cvar.distance_compute_blas_threshold

    def with_threshold(limit: int) -> np.ndarray:
        faiss.cvar.distance_compute_blas_threshold = limit
        return theirs.search(queries, k)[1]

    ways: dict[str, Callable[[], np.ndarray]] = {
        "exact": lambda: ask(index, queries, k, 0),
        "flat": lambda: with_threshold(shipped),
        "flat_blas": lambda: with_threshold(0),
    }
    ids = {name: way() for name, way in ways.items() if name != "flat"}  # also loads what is compiled
    rounds: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for _ in range(request["repeat"]):
        for name, way in ways.items():
            spent, ids[name] = timed(way)
            rounds[name].append(spent)
    agree = {name: float(np.mean(np.sort(result) == np.sort(ids["exact"]))) for name, result in ids.items()}
    single = {
        "exact": waits(lambda row: ask(index, row, k, 0), queries[: request["single"]]),
        "flat": waits(lambda row: theirs.search(row, k), queries[: request["single"]]),
    }
    return {"rounds": rounds, "agree": agree, "single": single, "blas_threshold": shipped}


def timed(work: Callable[[], Any]) -> tuple[tuple[float, float], Any]:
    """Return the seconds of the processor and on the wall, and what came out."""
    start = time.process_time(), time.perf_counter()
    result = work()
    return (time.process_time() - start[0], time.perf_counter() - start[1]), result


def waits(ask: Callable[[np.ndarray], Any], queries: np.ndarray) -> dict[str, float]:
    """Return percentiles of the time of single queries in milliseconds."""
    ask(queries[:1])
    times = [timed(lambda row=row: ask(queries[row : row + 1]))[0] for row in range(len(queries))]
    return {
        f"{clock}p{share}_ms": 1000 * float(np.percentile([one[at] for one in times], share))
        for at, clock in enumerate(("", "wall_"))
        for share in (50, 99)
    }


def recall(vectors: np.ndarray, queries: np.ndarray, ids: np.ndarray, floor: np.ndarray) -> float:
    """Return the share of the k best labels that were found."""
    scores = np.einsum("qd,qkd->qk", queries, vectors[np.maximum(ids, 0)], optimize=True)
    return float(((ids >= 0) & (scores >= floor[:, None] - ROUNDING)).mean())


def resident_mb(field: str = "VmRSS:") -> float:
    """Return the memory this process holds now, in MB (10^6 bytes)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) * 1024 / 1e6


def given_back(field: str = "VmRSS:") -> float:
    """Give free memory back to the system, and return what is held still."""
    gc.collect()
    with suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    return resident_mb(field)


def ours(kind: str, threads: int) -> tuple[Any, Any]:
    """An index of megalabel."""
    import faiss  # noqa: F401
    import torch

    from megalabel.index import ExactIndex, HnswIndex, IvfIndex, _kernels  # noqa: F401

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


def flat(threads: int) -> Callable[[np.ndarray], Any]:
    """Exact search of faiss."""
    import faiss

    faiss.omp_set_num_threads(threads)

    def build(vectors: np.ndarray) -> Any:
        index = faiss.IndexFlatIP(vectors.shape[1])
        index.add(vectors)
        return index

    return build


def usearch(threads: int) -> tuple[Any, Any]:
    """A graph of usearch."""
    from usearch.index import Index

    def build(vectors: np.ndarray, M: int, ef_construction: int) -> Any:
        index = Index(ndim=vectors.shape[1], metric="ip", dtype="f32", connectivity=M, expansion_add=ef_construction)
        index.add(np.arange(len(vectors)), vectors, threads=threads)
        return index

    def search(index: Any, queries: np.ndarray, k: int, effort: int) -> np.ndarray:
        index.expansion_search = effort
        result = index.search(queries, k, threads=threads)
        ids = np.asarray(result.keys).astype(np.int64).reshape(len(queries), -1)
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


def hnswlib(threads: int) -> tuple[Any, Any]:
    """A graph of hnswlib, compiled on this machine."""
    from hnswlib import Index

    def build(vectors: np.ndarray, M: int, ef_construction: int) -> Any:
        index = Index(space="ip", dim=vectors.shape[1])
        index.init_index(max_elements=len(vectors), M=M, ef_construction=ef_construction)
        index.add_items(vectors, num_threads=threads)
        return index

    def search(index: Any, queries: np.ndarray, k: int, effort: int) -> np.ndarray:
        index.set_ef(max(k, effort))
        ids, _ = index.knn_query(queries, k=k, num_threads=threads)
        return np.asarray(ids).astype(np.int64)

    return build, search


KINDS = {
    "exact": lambda threads: ours("exact", threads),
    "hnsw": lambda threads: ours("hnsw", threads),
    "ivf": lambda threads: ours("ivf", threads),
    "ivf-pq": lambda threads: ours("ivf", threads),
    "usearch": usearch,
    "voyager": voyager,
    "hnswlib": hnswlib,
}

if __name__ == "__main__":
    main()
