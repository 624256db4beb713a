"""How much of a training step goes into building its pool of labels.

Run: python benchmarks/pool.py [--data DIR] [--recipe unidec-cpu] [--steps 40]
Writes results/pool.json: share of the time of real training steps, hard negatives mined, that the pool builder takes.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import torch

from _results import write_result
from megalabel import load
from megalabel.batching.pool import PoolBuilder
from megalabel.data.hold_out import hold_out
from megalabel.recipes.build import build_encoders, build_network
from megalabel.recipes.load_recipe import load_recipe
from megalabel.training.loop import Loop
from megalabel.training.phase import Texts


def main() -> int:
    """Time the builder inside the loop."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="pydocs")
    parser.add_argument("--recipe", default="unidec-cpu")
    parser.add_argument("--steps", type=int, default=40)
    options = parser.parse_args()
    recipe = load_recipe(options.recipe, ["batching.refresh.start=0"])
    data = hold_out(load(options.data), share=recipe.training.validation, seed=recipe.seed)
    torch.manual_seed(recipe.seed)
    encoders = build_encoders(recipe, data)
    texts = Texts.of(data, encoders)
    network = build_network(recipe, encoders, len(data.labels))
    loop = Loop(recipe, network, data.train, texts.train, texts.labels)
    building = _watch()
    spent = whole = 0.0
    sizes = []
    while len(sizes) < options.steps:
        steps = loop.run_epoch()
        next(steps)  # the first step of an epoch holds the refresh
        before, start = sum(building), time.perf_counter()
        for result in steps:
            sizes.append(result.statistics["pool_size"])
            if len(sizes) >= options.steps:
                break
        whole += time.perf_counter() - start
        spent += sum(building) - before
    share, size = spent / whole, sum(sizes) / len(sizes)
    print(f"{share:.2%} of {1000 * whole / len(sizes):.0f} ms a step, {size:.0f} labels in a pool")
    write_result(
        "pool",
        {"data": Path(options.data).name, "recipe": options.recipe, "seed": recipe.seed, "steps": len(sizes),
         "batch_size": recipe.batching.batch_size, "pool_size": size, "share_of_step": share,
         "step_seconds": whole / len(sizes)},
        "torch",
    )  # fmt: skip
    return 0


def _watch() -> list[float]:
    """Write down the seconds of every call of the pool builder."""
    seconds: list[float] = []
    build, statistics = PoolBuilder.build, PoolBuilder.statistics

    def timed(function):
        def call(*arguments, **named):
            start = time.perf_counter()
            result = function(*arguments, **named)
            seconds.append(time.perf_counter() - start)
            return result

        return call

    PoolBuilder.build, PoolBuilder.statistics = timed(build), timed(statistics)  # type: ignore[method-assign]
    return seconds


if __name__ == "__main__":
    sys.exit(main())
