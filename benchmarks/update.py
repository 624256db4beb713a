"""`megalabel update` with a tenth of the rows, beside training anew on all rows (a study that can be resumed).

Run: OMP_NUM_THREADS=1 python benchmarks/update.py [--data DIR [DIR ...]] [--recipes NAME ...] [--rows N]
A model is trained on nine tenths of the train rows, over the labels that these have; then it is updated with the other
tenth, which brings new labels, and, beside that, the same recipe is trained anew on everything. All three are measured
on the test rows, a label that a model does not know counting as missed. All happens in one process, the base first, so
that what is loaded and compiled once counts for neither. Writes results/update.json after every row.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from _results import RESULTS, origin
from _rows import Row, row_of

if TYPE_CHECKING:
    from megalabel.data.dataset import Dataset, Split
    from megalabel.model import Model

SHARE = 0.1
METRICS = ("P@1", "P@5", "nDCG@5", "PSP@1", "PSP@5")


def part_of(data: Dataset, rows: int | None, seed: int) -> Dataset:
    """Return the set with at most so many train rows and as large a share of validation rows, over their labels."""
    if rows is None or rows >= len(data.train):
        return data
    rng = np.random.default_rng(seed)
    train = data.train.rows(np.sort(rng.choice(len(data.train), rows, replace=False)))
    val = data.val
    if val is not None:
        val = val.rows(np.sort(rng.choice(len(val), max(1, len(val) * rows // len(data.train)), replace=False)))
    return over(data, train, val)


def over(data: Dataset, train: Split, val: Split | None) -> Dataset:
    """Return a set of these rows and the test rows, over the labels of the train rows."""
    from megalabel.data.dataset import Dataset, Labels, Split

    ids = np.unique(train.targets.indices)
    place = np.full(len(data.labels), -1, dtype=np.int64)
    place[ids] = np.arange(len(ids))

    def narrowed(split: Split) -> Split:
        pairs = np.column_stack([split.filter[:, 0], place[split.filter[:, 1]]])
        targets = sparse.csr_matrix(split.targets[:, ids])
        whole = Split(split.texts, targets, split.uids, pairs[pairs[:, 1] >= 0])
        return whole.rows(np.flatnonzero(np.diff(targets.indptr) > 0))

    labels = Labels([data.labels.texts[label] for label in ids], [data.labels.uids[label] for label in ids])
    return Dataset(
        narrowed(train), narrowed(data.test), labels, None if val is None else narrowed(val), data.name,
        propensity=data.propensity,
    )  # fmt: skip


def timed(make: Callable[[], Model], data: Dataset) -> tuple[Model, dict[str, Any]]:
    """Make a model and measure it on the test rows."""
    start, cpu = time.perf_counter(), time.process_time()
    model = make()
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu
    metrics = model.evaluate(data).metrics
    found = {"seconds": seconds, "cpu_seconds": cpu_seconds, "metrics": {name: metrics[name] for name in METRICS}}
    print(json.dumps(found), flush=True)
    return model, found


def worker(request: dict[str, Any], out: Path) -> None:
    """Train, update, train anew."""
    import megalabel as ml

    recipe, seed = request["recipe"], request["seed"]
    data = part_of(ml.load(request["data"]), request["rows"], seed)
    order = np.random.default_rng(seed).permutation(len(data.train))
    count = round(SHARE * len(data.train))
    new, old = np.sort(order[:count]), np.sort(order[count:])
    base = over(data, data.train.rows(old), data.val)
    more = data.replace(train=data.train.rows(new), val=None, counts=np.empty(0, dtype=np.int64), points=0)
    with tempfile.TemporaryDirectory() as folder:
        settings = {"changes": request["changes"], "seed": seed}
        _, before = timed(lambda: ml.train(recipe, base, f"{folder}/run", **settings), data)
        updated, after = timed(lambda: ml.update(f"{folder}/run", more, seed=seed), data)
        _, anew = timed(lambda: ml.train(recipe, data, f"{folder}/anew", **settings), data)
    result = {
        **request,
        "data": Path(request["data"]).name,
        "train": len(data.train),
        "new": len(new),
        "labels": len(updated.labels),
        "new_labels": len(updated.labels) - len(base.labels),
        "before": before,
        "updated": after,
        "anew": anew,
        "threads": os.environ.get("OMP_NUM_THREADS"),
        "commit": origin()["commit"],
        "date": time.strftime("%Y-%m-%d"),
    }
    out.write_text(json.dumps(result))


def main() -> int:
    """Run what is missing, row by row, and write after each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="+", default=["pydocs"], help="data sets: folders or built-in names")
    parser.add_argument("--recipes", nargs="+", default=["auto"])
    parser.add_argument("--rows", type=int, help="train rows at most, at random")
    parser.add_argument("--seed", type=int, nargs="+", default=[0])
    parser.add_argument("--set", dest="changes", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--out", type=Path, default=RESULTS / "update.json")
    options = parser.parse_args()
    for data in options.data:
        for recipe in options.recipes:
            for seed in options.seed:
                row = Row(recipe, recipe, tuple(options.changes))
                result = row_of(options.out, row, data, seed, __file__, rows=options.rows)
                told = ", ".join(
                    f"{way} P@1 {result[way]['metrics']['P@1']:.2f} in {result[way]['cpu_seconds']:.0f} CPU s"
                    for way in ("before", "updated", "anew")
                )
                print(f"{result['data']}, seed {seed}, {recipe}: {told}", flush=True)
    return 0


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1].startswith("{"):
        worker(json.loads(sys.argv[1]), Path(sys.argv[2]))
    else:
        sys.exit(main())
