"""Runs with several seeds alone and as one ranking, by places and by scores.

Run: python benchmarks/ensembles.py [--data DIR ...] [--recipes NAME ...] [--seeds 0 1 2]
Writes results/ensembles.json after every recipe. Partitions of the labels, weights and batches depend on the seed, so
that runs of one recipe differ as the members of the published ensembles do.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from _results import RESULTS, write_result

RECIPES = ("decaf-cpu", "eclare-cpu", "lightxml-cpu", "xr-transformer-cpu")
METRICS = ("P@1", "P@5", "PSP@1", "PSP@5")


def main() -> int:
    """Train, join, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="+", default=["pydocs"], help="data sets: folders or built-in names")
    parser.add_argument("--recipes", nargs="+", default=RECIPES)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    options = parser.parse_args()
    path = RESULTS / "ensembles.json"
    rows: list[dict[str, Any]] = json.loads(path.read_text())["rows"] if path.is_file() else []
    for data in options.data:
        for recipe in options.recipes:
            mine = measure(recipe, data, options.seeds)
            rows = [row for row in rows if (row["recipe"], row["data"]) != (recipe, Path(data).name)] + mine
            write_result("ensembles", {"rows": rows}, "torch")
    return 0


def measure(recipe: str, data: str, seeds: list[int]) -> list[dict[str, Any]]:
    """Return the rows of single runs, and of both ways to join them."""
    import megalabel as ml

    loaded = ml.load(data)
    with tempfile.TemporaryDirectory() as folder:
        models = [ml.train(recipe, loaded, Path(folder) / str(seed), seed=seed) for seed in seeds]
    reports = {f"seed {seed}": model.evaluate(loaded) for seed, model in zip(seeds, models, strict=True)}
    reports |= {f"by {rule}": ml.Ensemble(models, rule).evaluate(loaded) for rule in ("rank", "score")}
    rows = []
    for name, report in reports.items():
        figures = {metric: report.metrics[metric] for metric in METRICS}
        rows.append({"recipe": recipe, "data": Path(data).name, "name": name, "seeds": seeds, **figures})
        print(f"{recipe}, {Path(data).name}, {name}: " + ", ".join(f"{m} {v:.2f}" for m, v in figures.items()))
    return rows


if __name__ == "__main__":
    sys.exit(main())
