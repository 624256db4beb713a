"""``megalabel recipes`` and ``megalabel show``: what can be trained."""

from __future__ import annotations

from typing import Annotated

import typer

from megalabel.cli._options import JsonOption, print_json

__all__ = ["recipes", "show"]


def recipes(as_json: JsonOption = False) -> None:
    """List the recipes: every system as a short file over the same parts."""
    from megalabel.recipes import list_recipes, load_recipe

    found = [load_recipe(name) for name in list_recipes()]
    if as_json:
        keys = {"name", "paper", "about", "differs", "published"}
        print_json([recipe.model_dump(mode="json", include=keys) for recipe in found])
        return
    for recipe in found:
        typer.echo(f"{recipe.name:<14} {recipe.about}")


def show(recipe: Annotated[str, typer.Argument(metavar="RECIPE", help="A name or a YAML file.")]) -> None:
    """Explain a recipe: its paper, what differs from its neighbours, published figures, and the recipe itself."""
    from megalabel.recipes import load_recipe
    from megalabel.recipes.load_recipe import dump_recipe

    found = load_recipe(recipe)
    typer.echo(f"{found.name}: {found.about}\npaper: {found.paper}")
    if found.differs:
        typer.echo(f"differs {found.differs}")
    for figure in found.published:
        metrics = ", ".join(f"{name} {value}" for name, value in figure.metrics.items())
        typer.echo(f"published on {figure.data}: {metrics} ({figure.source})")
    typer.echo(f"\n{dump_recipe(found)}", nl=False)
