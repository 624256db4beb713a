"""``megalabel recipes`` and ``megalabel show``: the recipes that can be trained."""

from __future__ import annotations

from typing import Annotated

import typer

from megalabel.cli._options import JsonOption, print_json

__all__ = ["recipes", "show"]


def recipes(
    as_json: JsonOption = False,
    as_table: Annotated[
        bool,
        typer.Option(
            "--table", help="Print a table: the choices of every recipe, stage by stage, and its published figures."
        ),
    ] = False,
) -> None:
    """List the recipes.

    A recipe is a short YAML file that describes one published system.

    Example: megalabel recipes --table
    """
    from megalabel.errors import SettingError
    from megalabel.recipes import list_recipes, load_recipe
    from megalabel.recipes.published import load_published

    if as_json and as_table:
        raise SettingError("--json and --table exclude each other", remedy="choose one")
    if as_table:
        typer.echo(_table())
        return
    all_recipes = [load_recipe(name) for name in list_recipes()]
    if as_json:
        keys = {"name", "paper", "about", "differs"}
        print_json([
            recipe.model_dump(mode="json", include=keys)
            | {"published": [figures.model_dump(mode="json") for figures in load_published(recipe.name)]}
            for recipe in all_recipes
        ])  # fmt: skip
        return
    for recipe in all_recipes:
        typer.echo(f"{recipe.name:<17} {recipe.about}")


def _table() -> str:
    """Return the table of all recipes, in columns."""
    from megalabel.recipes.table import COLUMNS, recipe_rows

    rows = [COLUMNS, *recipe_rows()]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def show(
    recipe: Annotated[str, typer.Argument(metavar="RECIPE", help="A name from `megalabel recipes`, or a YAML file.")],
) -> None:
    """Show a recipe: its paper, how it differs from others, published figures, and its settings.

    Example: megalabel show unidec-cpu
    """
    from megalabel.recipes import load_recipe
    from megalabel.recipes.load_recipe import dump_recipe
    from megalabel.recipes.published import load_published

    loaded = load_recipe(recipe)
    typer.echo(f"{loaded.name}: {loaded.about}\npaper: {loaded.paper}")
    if loaded.differs:
        typer.echo(f"differs {loaded.differs}")
    for figure in load_published(recipe):
        metrics = ", ".join(f"{name} {value}" for name, value in figure.metrics.items())
        data = f"{figure.data}, variant {figure.variant!r}" if figure.variant else figure.data
        typer.echo(f"published on {data}: {metrics} ({figure.source})")
    typer.echo(f"\n{dump_recipe(loaded)}", nl=False)
