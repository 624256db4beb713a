"""docs/training.md: its recipes load, and it names every key a recipe can have."""

import re
from pathlib import Path

import pytest
import yaml

from megalabel.recipes.load_recipe import dump_recipe, list_recipes, load_recipe, make_recipe
from megalabel.recipes.schema import Recipe
from megalabel.settings import reachable

PAGE = (Path(__file__).parents[2] / "docs" / "training.md").read_text(encoding="utf-8")
RECIPES = [yaml.safe_load(block) for block in re.findall(r"^```yaml\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)]
SETTINGS = [each for each in reachable(Recipe) if each.__module__.startswith("megalabel.")]


@pytest.mark.parametrize("document", RECIPES, ids=lambda document: document["name"])
def test_example_loads(document):
    recipe = make_recipe(document)
    assert make_recipe(yaml.safe_load(dump_recipe(recipe))) == recipe
    assert all(stage.heads for _, stage in recipe.stage_recipes())


def test_there_are_three_examples():
    assert len(RECIPES) == 3


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda settings: settings.__name__)
def test_every_key_is_on_the_page(settings):
    prose = re.sub(r"<!-- generated: \w+ -->.*?<!-- end -->|^```.*?^```", "", PAGE, flags=re.DOTALL | re.MULTILINE)
    named = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`]+)`", prose))))
    missing = {field.alias or name for name, field in settings.model_fields.items()} - named
    assert not missing, f"docs/training.md does not mention {', '.join(sorted(missing))} of {settings.__name__}"


def test_the_index_that_mines_negatives_is_named():
    """The page names the recipes that do not mine by exact search."""
    search: dict[str, list[str]] = {}
    for name in list_recipes():
        mining = load_recipe(name).batching.mining
        if mining is not None:
            search.setdefault(mining.search.kind, []).append(name)
    assert search.pop("exact")
    assert search == {"ivf": ["auto", "distil"], "hnsw": ["astec", "astec-cpu"]}
    assert "exact search by default, IVF in `auto` and `distil`, HNSW in `astec` and `astec-cpu`" in " ".join(
        PAGE.split()
    )
