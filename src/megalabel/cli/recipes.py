"""``megalabel recipes`` and ``megalabel show``: the recipes that can be trained."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from megalabel.cli._options import JsonOption, print_json

if TYPE_CHECKING:
    from megalabel.recipes import Recipe

__all__ = ["recipes", "show"]


def recipes(
    as_json: JsonOption = False,
    as_table: Annotated[bool, typer.Option("--table", help="Print a table of the parts of every recipe.")] = False,
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
    all_recipes = [load_recipe(name) for name in list_recipes()]
    if as_table:
        typer.echo(_table(all_recipes))
        return
    if as_json:
        keys = {"name", "paper", "about", "differs"}
        print_json([
            recipe.model_dump(mode="json", include=keys)
            | {"published": [figures.model_dump(mode="json") for figures in load_published(recipe.name)]}
            for recipe in all_recipes
        ])  # fmt: skip
        return
    for recipe in all_recipes:
        typer.echo(f"{recipe.name:<14} {recipe.about}")


def _table(recipes: list[Recipe]) -> str:
    """Return one line per recipe with the parts in which the systems differ."""
    from megalabel.batching.settings import SampledBatching

    rows = [("recipe", "encoder", "heads", "loss", "batch", "order", "positives", "labels per step", "epochs")]
    for recipe in recipes:
        batching = recipe.batching
        losses = dict.fromkeys(head.loss.kind for head in recipe.dense_heads.values() if head.loss is not None)
        positives, labels = "all", [batching.labels]
        if isinstance(batching, SampledBatching):
            count = getattr(batching.positives, "count", None)
            positives = f"{count} at random" if count else batching.positives.pick
            extra = {name: getattr(batching.negatives, name) for name in ("mined", "bm25", "uniform")}
            labels = ["positives", *(f"{number} {name}" for name, number in extra.items() if number)]
        rows.append((
            recipe.name,
            recipe.encoder.kind,
            " + ".join(head.kind for head in recipe.heads.values()),
            ", ".join(losses),
            f"{batching.batch_size:,}",
            batching.order.kind,
            positives,
            " + ".join(labels),
            str(recipe.training.epochs),
        ))  # fmt: skip
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
