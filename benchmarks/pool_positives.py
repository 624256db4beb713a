"""How many of a query's positives are in the pool of a batch, against the size of the pool.

Run: python benchmarks/pool_positives.py [--data DIR ...]
Writes results/pool_positives.json: for several batch sizes, shuffled and clustered batches, and one, three or all
positives picked per query, the mean size of the pool, the positives of a query in it, and their share of all its
positives. No hard negatives; clusters by the vectors of the untrained encoder. docs/build.py draws it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from _results import write_result
from megalabel import load
from megalabel.batching import generator
from megalabel.batching.clusters import balanced_clusters
from megalabel.batching.order import Clustered, Shuffled
from megalabel.batching.pool import PoolBuilder
from megalabel.batching.positives import All, One, Some
from megalabel.data.dataset import Dataset
from megalabel.network.vectors import all_queries
from megalabel.recipes.build import build_encoders, build_network
from megalabel.recipes.load_recipe import load_recipe
from megalabel.training.phase import Texts

RECIPE = "unidec-cpu"
PICKERS = {"one": One(), "three": Some(3), "all": All()}
SIZES = (32, 64, 128, 256, 512, 1024, 2048)
SEED = 0


def main() -> int:
    """Build the batches of one epoch for every setting."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="+", default=["pydocs"])
    sets = [(Path(name).name, load(name)) for name in parser.parse_args().data]
    write_result(
        "pool_positives", {"seed": SEED, "rows": [row for name, data in sets for row in rows(name, data)]}, "torch"
    )
    return 0


def rows(name: str, data: Dataset) -> list[dict[str, Any]]:
    """Return one row for each setting."""
    recipe = load_recipe(RECIPE, [])
    torch.manual_seed(SEED)
    encoders = build_encoders(recipe, data)
    network = build_network(recipe, encoders, len(data.labels)).eval()
    vectors = all_queries(network, Texts.of(data, encoders).train)[network.mining_head()]
    found = []
    for size in SIZES:
        if 4 * size > len(data.train):
            break
        orders = {
            "shuffled": Shuffled(np.arange(len(data.train)), size, SEED),
            "clustered": Clustered(balanced_clusters(vectors, size, seed=SEED), size, SEED),
        }
        for order, batches in orders.items():
            for pick, positives in PICKERS.items():
                builder = PoolBuilder(data.train.targets, data.train.filter, positives=positives)
                numbers = [
                    builder.statistics(builder.build(batch, rng=generator(SEED, "step", 0, place)))
                    for place, batch in enumerate(batches.batches(0))
                ]
                mean = {key: float(np.mean([number[key] for number in numbers])) for key in numbers[0]}
                found.append({"data": name, "batch_size": size, "order": order, "pick": pick, **mean})
                print(name, size, order, pick, {key: round(value, 3) for key, value in mean.items()}, flush=True)
    return found


if __name__ == "__main__":
    sys.exit(main())
