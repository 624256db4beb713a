"""Budgets of processor time: seconds from a log, epochs that fit, and settings that move along with them."""

import sys
from importlib import import_module
from pathlib import Path

import pytest

from megalabel.recipes import list_recipes, load_recipe

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))
budget = import_module("_budget")
sys.path.remove(str(BENCHMARKS))


def test_evaluation_is_counted_apart_and_stages_one_by_one():
    log = [
        {"phase": "one", "seconds": 2.0, "loss": 1.0},
        {"phase": "one", "seconds": 3.0, "val": {}},
        {"phase": "one", "seconds": 5.0, "loss": 1.0},
        {"phase": "two", "seconds": 1.0, "loss": 1.0},
        {"phase": "two", "seconds": 1.5, "val": {}},
    ]
    times = budget.phase_times(log)
    assert times == {"one": budget.PhaseTime(4.0, 1.0), "two": budget.PhaseTime(1.0, 0.5)}


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(1e9, {"one": 8, "two": 4}), (50, {"one": 4, "two": 2}), (1, {"one": 1, "two": 1})],
)
def test_epochs_are_cut_in_the_proportions_of_the_recipe(seconds, expected):
    assert budget.epochs_within(seconds, {"one": 8, "two": 4}, {"one": 10.0, "two": 5.0}) == expected


@pytest.mark.parametrize("name", [name for name in list_recipes() if name.endswith("-cpu")])
@pytest.mark.parametrize("epochs", [1, 2, 50])
def test_every_recipe_can_be_cut(name, epochs):
    recipe = load_recipe(name)
    wanted = {stage.name: epochs for stage, _ in recipe.stage_recipes()}
    cut = load_recipe(name, budget._changes(recipe, wanted))
    assert {stage.name: staged.training.epochs for stage, staged in cut.stage_recipes()} == wanted
    for _, staged in cut.stage_recipes():
        assert staged.batching.refresh.start < epochs or not (staged.batching.clusters or staged.batching.mines)
