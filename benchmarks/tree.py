"""The head `tree` alone beside XR-Linear of libpecos, the system it follows: precision and processor time.

Run: python benchmarks/tree.py [--data DIR ...] [--seed 0 1 2] [--threads 1]
Writes results/tree.json after every data set. Both learn from the same rows, train + val, by n-grams of words and word
pairs that at least two texts have; each makes its own. Every run is a process of its own, in turns, so that other work
on the machine slows both. Times are those of the processor, from texts to model and from texts to labels.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from _results import write_result
from _rows import in_own_process
from quality import DEPTH, METRICS, SYSTEMS, Peer, name_of, run_peer

NGRAMS = {"characters": 0, "min_df": 2}
PEER = next(system for system in SYSTEMS if isinstance(system, Peer) and system.name == "XR-Linear")
SHOWN = ("P@1", "P@5", "PSP@5")


def main() -> int:
    """Measure both on every data set, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="+", default=["pydocs"], help="data sets: folders or built-in names")
    parser.add_argument("--seed", type=int, nargs="+", default=[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    options.limit = 60
    rows: list[dict[str, Any]] = []
    for data in options.data:
        rows += measure(data, options)
        settings = {"threads": options.threads, "ngrams": NGRAMS, "load": os.getloadavg()[0]}
        write_result("tree", {**settings, "rows": rows}, "numba", out=options.out)
    return 0


def measure(data: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the rows of both systems on one data set, seed by seed."""
    variables = {f"{name}_NUM_THREADS": str(options.threads) for name in ("OMP", "OPENBLAS", "MKL", "NUMBA")}
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in options.seed:
            asked = {"data": data, "seed": seed}
            ours = in_own_process([sys.executable, __file__, "row"], asked, variables=variables)
            theirs = run_peer(PEER, data, seed, options, Path(folder), variables)
            rows += [{"system": "tree", "data": name_of(data), "seed": seed, **ours},
                     {"system": PEER.name, "data": name_of(data), "seed": seed, **theirs}]  # fmt: skip
            ratio = ours["fit_cpu_seconds"] / theirs["fit_cpu_seconds"]
            for row in rows[-2:]:
                figures = ", ".join(f"{name} {row[name]:.2f}" for name in SHOWN)
                print(f"{row['data']}, {row['system']}: {figures}, fit {row['fit_cpu_seconds']:.1f} s", flush=True)
            print(f"{name_of(data)}: {ratio:.2f}x the processor time", flush=True)
    return rows


def run_tree(request: dict[str, Any], out: Path) -> None:
    """Fit the head on the n-grams of a data set and measure it."""
    import megalabel as ml
    from _peers.handover import peak_mb
    from megalabel.heads import Tree
    from megalabel.metrics import measure
    from megalabel.network.fit import fit_ngrams

    data = ml.load(request["data"])
    whole = data.refit()
    start, used = time.perf_counter(), time.process_time()
    ngrams = fit_ngrams(NGRAMS, whole)
    rows, known = ngrams.encode(whole.train.texts), whole.train.without(whole.train.filter).targets
    tree = Tree(seed=request["seed"]).fit(rows, known, whole.train.excluded())
    middle, used_by_fit = time.perf_counter(), time.process_time() - used
    ids = tree.search(ngrams.encode(data.test.texts), DEPTH, data.test.excluded()).ids
    end, used_in_all = time.perf_counter(), time.process_time() - used
    metrics = measure(data, ids).metrics
    result = {
        **{metric: metrics[metric] for metric in METRICS},
        "fit_seconds": middle - start,
        "fit_cpu_seconds": used_by_fit,
        "predict_seconds": end - middle,
        "predict_cpu_seconds": used_in_all - used_by_fit,
        "peak_mb": peak_mb(),
        "parameters": sum(level.weights.nnz for level in tree.trees_[0]),
    }
    out.write_text(json.dumps(result), encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:2] == ["row"]:
        run_tree(json.loads(sys.argv[2]), Path(sys.argv[3]))
    else:
        sys.exit(main())
