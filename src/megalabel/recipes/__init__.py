"""Recipes: every system as a short file over the same parts."""

from megalabel.recipes.load_recipe import list_recipes, load_recipe
from megalabel.recipes.schema import Recipe

__all__ = ["Recipe", "list_recipes", "load_recipe"]
