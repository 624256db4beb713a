"""Retrieval for questions with several relevant documents: are all of them in the top k? Seven losses.

Run: python benchmarks/rag.py --data DIR/eurlex57k-titles --seed 0 1 2 --minutes 200
     python benchmarks/rag.py --data DIR/manpages DIR/debian-related --dry       what is missing, and about how long
A text of the set is a question, its labels are the documents that answer it together. One dual encoder over all
documents, the same but for its loss, for 20 epochs: decoupled softmax and soft top-k (Gupta et al. 2024, section 4; at
most k positives of a question in each step, as in their code), softmax over all documents with every positive a target,
and InfoNCE with one positive drawn in each step and all others counted as wrong, as retrievers are commonly trained.

Counted is the share of test questions all of whose documents are among the k best, over those that have at least two
documents and at most k (more cannot fit), and by the number of documents; filter pairs are left out. The rank of the
last document of each question is kept, for intervals by a paired bootstrap. Rows that are in results/rag.json already
(same recipe, data and seed) are kept. --set changes all rows.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from _budget import read_log
from _jobs import Job, missing, run_jobs
from _paired import packed
from _results import RESULTS, origin
from _rows import Row, row_of

KS = (5, 10, 20, 100)
COUNTS = {"1": (1, 1), "2": (2, 2), "3 to 5": (3, 5), "6 and more": (6, 10**9)}
EPOCHS = ("training.epochs=20", "training.evaluate_on=2000")
LOSSES: dict[str, tuple[str, ...]] = {
    "DS": ("heads.dual.loss.kind=decoupled_softmax",),
    "InfoNCE, one positive": (
        "heads.dual.loss.kind=softmax",
        "batching.loss_positives=one",
        "batching.unsampled=negative",
    ),
    "softmax": ("heads.dual.loss.kind=softmax",),
    **{
        f"SoftTop-{k}": (f"heads.dual.loss={{kind: soft_top_k, k: {k}}}", f"batching.loss_positives={k}")
        for k in (10, 5, 20, 100)
    },
}


def rows(recipe: str, changes: Sequence[str]) -> list[Row]:
    """Return a row for each loss: a recipe with changes that hold for all."""
    return [Row(name, recipe, (*EPOCHS, *changes, *own)) for name, own in LOSSES.items()]


def complete(ids: np.ndarray, targets: Any) -> np.ndarray:
    """Return [N] the smallest k at which all documents of a question are found, 0 where some are not among the ids."""
    result = np.zeros(len(ids), dtype=np.int64)
    for row, best in enumerate(ids):
        wanted = targets.indices[targets.indptr[row] : targets.indptr[row + 1]]
        places = np.flatnonzero(np.isin(best, wanted))
        if len(wanted) and len(places) == len(wanted):
            result[row] = places[-1] + 1
    return result


def shares(needed: np.ndarray, counts: np.ndarray) -> dict[str, Any]:
    """Return, for each k, the percentage of complete questions with 2 to k documents, and by number of documents."""

    def share(of: np.ndarray, k: int) -> dict[str, float]:
        hits = (needed[of] > 0) & (needed[of] <= k)
        return {"questions": int(of.sum()), "complete": 100 * float(hits.mean()) if of.any() else 0.0}

    return {
        str(k): {
            "several": share((counts >= 2) & (counts <= k), k),
            **{name: share((counts >= low) & (counts <= min(high, k)), k) for name, (low, high) in COUNTS.items()},
        }
        for k in KS
    }


def worker(request: dict[str, Any], out: Path) -> None:
    """Train and measure one row."""
    import megalabel as ml

    data = ml.load(request["data"])
    start, cpu = time.perf_counter(), time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        model = ml.train(request["recipe"], data, run, changes=request["changes"], seed=request["seed"])
        log = read_log(run)
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    test = data.test
    best = model.search(test.texts, min(max(KS), len(data.labels)), exclude=test.excluded())
    metrics = model.evaluate(data).metrics
    needed, counts = complete(best.ids, test.targets), np.diff(test.targets.indptr)
    result = {
        **request,
        "data": Path(request["data"]).name,
        "complete": shares(needed, counts),
        "needed": packed(needed),  # at most 100
        "documents": packed(np.minimum(counts, 255)),
        "metrics": {name: metrics[name] for name in ("P@1", "P@5", "R@10", "R@100", "nDCG@5", "PSP@5")},
        "curve": [{name: line["val"][name] for name in ("R@10", "nDCG@5")} for line in log if "val" in line],
        "steps": sum("loss" in line for line in log),
        "seconds": seconds,
        "cpu_seconds": cpu,
        "threads": os.environ.get("OMP_NUM_THREADS"),
        "commit": origin()["commit"],
        "date": time.strftime("%Y-%m-%d"),
    }
    out.write_text(json.dumps(result))


def line(result: dict[str, Any]) -> str:
    """Say what came out, in one line."""
    parts = [f"@{k} {values['several']['complete']:.2f}" for k, values in result["complete"].items()]
    return f"all documents found {', '.join(parts)}; P@1 {result['metrics']['P@1']:.2f}; {result['seconds']:.0f} s"


def main() -> int:
    """Run what is missing, row by row, and write after each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="+", default=["pydocs"], help="data sets: folders or built-in names")
    parser.add_argument("--seed", type=int, nargs="+", default=[0])
    parser.add_argument("--only", nargs="+", choices=list(LOSSES), help="losses to run")
    parser.add_argument("--minutes", type=float, help="start no further row after so many minutes")
    parser.add_argument("--dry", action="store_true", help="list what is missing, with the time it may take, and stop")
    parser.add_argument("--recipe", default="dexml-cpu", help="a recipe with a head named dual")
    parser.add_argument("--set", dest="changes", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--out", type=Path, default=RESULTS / "rag.json")
    options = parser.parse_args()
    jobs = [
        Job(data, seed, row)
        for data in options.data
        for seed in options.seed
        for row in rows(options.recipe, options.changes)
        if not options.only or row.name in options.only
    ]

    def run(job: Job) -> str:
        return line(row_of(options.out, job.row, job.data, job.seed, __file__))

    return run_jobs("rag", missing(options.out, jobs, {}), options, run)


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1].startswith("{"):
        worker(json.loads(sys.argv[1]), Path(sys.argv[2]))
    else:
        sys.exit(main())
