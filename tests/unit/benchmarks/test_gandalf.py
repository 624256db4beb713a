"""The Gandalf study: every row is a valid recipe and a run of its own, those of the paper in its exact form."""

import sys
from importlib import import_module
from pathlib import Path

from megalabel.recipes.load_recipe import load_recipe

ROOT = Path(__file__).parents[3] / "benchmarks"
sys.path.insert(0, str(ROOT))
study, rows = import_module("gandalf"), import_module("_rows")
sys.path.remove(str(ROOT))

RECIPES = {row.name: load_recipe(row.recipe, row.changes) for row in study.ROWS}


def test_no_run_is_repeated():
    digests = [rows.digest(row) for row in study.ROWS]
    assert len(set(digests)) == len(digests) == len(RECIPES)


def test_rows_of_the_paper_ignore_known_labels():
    for name, recipe in RECIPES.items():
        if recipe.augment is not None and recipe.augment.kind == "gandalf" and recipe.augment.targets != "self":
            assert recipe.augment.known == ("merge" if "merged" in name else "ignore")
            assert recipe.augment.max_targets is None or "at most" in name or "Z1" in name
