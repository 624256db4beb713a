"""Retrieval for questions with several relevant documents: are all of them in the top k? DS against InfoNCE.

Run: python benchmarks/rag.py [--data DIR [DIR ...]] [--seed 0 1 2]
A text of the set is a question, its labels are the documents that answer it together. One dual encoder, the same but
for its loss: decoupled softmax (Gupta et al. 2024, section 4), or softmax over all documents, which is InfoNCE with
every positive a target. Counted is the share of test questions all of whose documents are among the k best, over those
that have at least two documents and at most k (more cannot fit), and by the number of documents; filter pairs are left
out. Rows that are in results/rag.json already (same recipe, data and seed) are kept. --set changes both rows.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from _results import RESULTS
from _rows import Row, row_of

KS = (5, 10, 20, 100)
COUNTS = {"1": (1, 1), "2": (2, 2), "3 to 5": (3, 5), "6 and more": (6, 10**9)}
LOSSES = {"DS": "decoupled_softmax", "InfoNCE": "softmax"}


def rows(recipe: str, changes: list[str]) -> list[Row]:
    """Return the two rows: a recipe with either loss."""
    return [Row(name, recipe, (*changes, f"heads.dual.loss.kind={kind}")) for name, kind in LOSSES.items()]


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
    start = time.perf_counter()
    model = ml.train(request["recipe"], data, changes=request["changes"], seed=request["seed"])
    seconds = time.perf_counter() - start
    test = data.test
    best = model.search(test.texts, min(max(KS), len(data.labels)), exclude=test.excluded())
    metrics = model.evaluate(data).metrics
    result = {
        **request,
        "data": Path(request["data"]).name,
        "complete": shares(complete(best.ids, test.targets), np.diff(test.targets.indptr)),
        "metrics": {name: metrics[name] for name in ("P@1", "P@5", "R@10", "R@100", "nDCG@5", "PSP@5")},
        "seconds": seconds,
        "threads": os.environ.get("OMP_NUM_THREADS"),
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
    parser.add_argument("--recipe", default="dexml-cpu", help="a recipe with a head named dual")
    parser.add_argument("--set", dest="changes", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--out", type=Path, default=RESULTS / "rag.json")
    options = parser.parse_args()
    wanted = [
        (data, seed, row)
        for data in options.data
        for seed in options.seed
        for row in rows(options.recipe, options.changes)
    ]
    for data, seed, row in wanted:
        result = row_of(options.out, row, data, seed, __file__)
        print(f"{result['data']}, seed {seed}, {row.name}: {line(result)}", flush=True)
    return 0


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1].startswith("{"):
        worker(json.loads(sys.argv[1]), Path(sys.argv[2]))
    else:
        sys.exit(main())
