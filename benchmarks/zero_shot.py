"""Labels added after training, by their texts alone, beside the same labels trained (a study that can be resumed).

Run: python benchmarks/zero_shot.py [--data DIR [DIR ...]] [--recipes NAME ...] [--seed 0 1 2]
A tenth of the labels that test rows carry is new. One model is trained on everything. The other is trained as if they
did not exist: their columns leave the targets, and so do train rows that have no other label or the text of a new one;
then `Model.add_labels` gets their texts. Both rank all labels for the test rows that carry a new one. Counted is the
recall of new labels and of the others in the same rows, and the share of the ten best places that new labels take.
Writes results/zero_shot.json after every row; one that is there already with the same settings is kept.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from _results import RESULTS, origin
from _rows import Row, row_of

if TYPE_CHECKING:
    from megalabel.data.dataset import Dataset, Split

SHARE = 0.1
KS = (1, 10, 100)
PLACES = 10
RECIPES = ("dexml-cpu", "unidec-cpu", "auto")
WAYS = ("trained", "added")


def new_labels(data: Dataset, seed: int) -> np.ndarray:
    """Return the ids of the labels to be new: a tenth of those that test rows carry."""
    carried = np.unique(data.test.targets.indices)
    count = max(1, round(SHARE * len(carried)))
    return np.sort(np.random.default_rng(seed).choice(carried, count, replace=False))


def without(data: Dataset, new: np.ndarray) -> Dataset:
    """Return the set as it was before the new labels came."""
    from megalabel.data.dataset import Dataset, Labels

    old = np.setdiff1d(np.arange(len(data.labels)), new)
    texts = {data.labels.texts[label] for label in new.tolist()}

    def part(split: Split, *, train: bool) -> Split:
        known = narrowed(split, old)
        seen = np.array([text not in texts for text in split.texts]) if train else np.ones(len(split), dtype=bool)
        return known.rows(np.flatnonzero((np.diff(known.targets.indptr) > 0) & seen))

    labels = Labels([data.labels.texts[label] for label in old], [data.labels.uids[label] for label in old])
    val = None if data.val is None else part(data.val, train=True)
    return Dataset(
        part(data.train, train=True), part(data.test, train=False), labels, val, data.name, propensity=data.propensity
    )


def narrowed(split: Split, columns: np.ndarray) -> Split:
    """Return a split over some of the labels, in this order."""
    from megalabel.data.dataset import Split

    place = np.full(split.targets.shape[1], -1, dtype=np.int64)
    place[columns] = np.arange(len(columns))
    pairs = np.column_stack([split.filter[:, 0], place[split.filter[:, 1]]])
    targets = sparse.csr_matrix(split.targets[:, columns])
    return Split(split.texts, targets, split.uids, pairs[pairs[:, 1] >= 0])


def measure(ids: np.ndarray, targets: sparse.csr_matrix, new: np.ndarray) -> dict[str, float]:
    """Return recalls in percent over pairs of row and label, of new labels and of the others."""
    rows, columns = targets.nonzero()
    kind = np.isin(columns, new)
    result = {}
    for k in KS:
        hit = (ids[rows, :k] == columns[:, None]).any(axis=1)
        result[f"R@{k}"] = 100 * float(hit[kind].mean())
        result[f"others R@{k}"] = 100 * float(hit[~kind].mean()) if (~kind).any() else float("nan")
    result["places"] = 100 * float(np.isin(ids[:, :PLACES], new).mean())
    return result


def worker(request: dict[str, Any], out: Path) -> None:
    """Train one model, one way, and measure it."""
    import megalabel as ml

    data = ml.load(request["data"])
    new = new_labels(data, request["seed"])
    added = request["way"] == "added"
    start = time.perf_counter()
    model = ml.train(
        request["recipe"], without(data, new) if added else data, changes=request["changes"], seed=request["seed"]
    )
    seconds, milliseconds = time.perf_counter() - start, None
    if added:
        start = time.perf_counter()
        model.add_labels([data.labels.texts[label] for label in new], [data.labels.uids[label] for label in new])
        milliseconds = 1000 * (time.perf_counter() - start) / len(new)
    columns = np.concatenate([np.setdiff1d(np.arange(len(data.labels)), new), new]) if added else None
    test = data.test if columns is None else narrowed(data.test, columns)
    last = np.arange(len(data.labels) - len(new), len(data.labels)) if added else new
    rows = np.flatnonzero(np.diff(sparse.csr_matrix(data.test.targets[:, new]).indptr))
    part = test.rows(rows)
    heads = ["all", *(model.heads if len(model.heads) > 1 else ())]
    excluded = part.excluded()
    result = {
        **request,
        "data": Path(request["data"]).name,
        "new": len(new),
        "labels": len(data.labels),
        "rows": len(rows),
        "pairs": int(data.test.targets[:, new].nnz),
        "metrics": {
            head: measure(model.search(part.texts, max(KS), heads=head, exclude=excluded).ids, part.targets, last)
            for head in heads
        },
        "add_ms": milliseconds,
        "seconds": seconds,
        "cpu_seconds": resource.getrusage(resource.RUSAGE_SELF).ru_utime,
        "threads": os.environ.get("OMP_NUM_THREADS"),
        "commit": origin()["commit"],
        "date": time.strftime("%Y-%m-%d"),
    }
    out.write_text(json.dumps(result))


def main() -> int:
    """Run what is missing, row by row, and write after each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="+", default=["pydocs"], help="data sets: folders or built-in names")
    parser.add_argument("--recipes", nargs="+", default=list(RECIPES))
    parser.add_argument("--seed", type=int, nargs="+", default=[0])
    parser.add_argument("--set", dest="changes", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--out", type=Path, default=RESULTS / "zero_shot.json")
    options = parser.parse_args()
    every = [(data, seed, name) for data in options.data for seed in options.seed for name in options.recipes]
    for data, seed, name in every:
        for way in WAYS:
            row = Row(name, name, tuple(options.changes))
            result = row_of(options.out, row, data, seed, __file__, way=way)
            recalls = ", ".join(f"{title} {value:.2f}" for title, value in result["metrics"]["all"].items())
            print(f"{result['data']}, seed {seed}, {name}, {way}: {recalls}; {result['seconds']:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1].startswith("{"):
        worker(json.loads(sys.argv[1]), Path(sys.argv[2]))
    else:
        sys.exit(main())
