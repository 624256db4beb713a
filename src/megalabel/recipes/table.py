"""One table of all recipes: the choices in which systems differ, stage by stage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from megalabel.batching.settings import Batching, SampledBatching
from megalabel.recipes.load_recipe import list_recipes, load_recipe
from megalabel.recipes.published import load_published

if TYPE_CHECKING:
    from megalabel.recipes.schema import Recipe, Stage

__all__ = ["COLUMNS", "recipe_rows"]

COLUMNS = (
    "recipe", "stage", "encoder", "heads", "loss", "batch", "order", "positives", "labels per step", "epochs",
    "predict", "published",
)  # fmt: skip


def recipe_rows(names: Sequence[str] | None = None) -> list[tuple[str, ...]]:
    """Return a row of :data:`COLUMNS` for each stage of each recipe; all recipes if no names are given.

    What belongs to the whole recipe (its name, prediction, number of sets with published figures) is in the row of its
    first stage. A head in brackets is not trained in that stage.

    >>> recipe_rows(["depsl-cpu"])[0][2:6]
    ('bag', 'text', 'decoupled_softmax', '1,024')
    """
    rows = []
    for name in list_recipes() if names is None else names:
        recipe = load_recipe(name)
        for place, (stage, staged) in enumerate(recipe.stage_recipes()):
            first = place == 0
            rows.append((
                name if first else "",
                stage.name if recipe.stages else "",
                *_choices(stage, staged),
                _prediction(recipe) if first else "",
                _published(name) if first else "",
            ))  # fmt: skip
    return rows


def _choices(stage: Stage, recipe: Recipe) -> tuple[str, ...]:
    """Return the columns from ``encoder`` to ``epochs``."""
    default = next(iter(recipe.encoders))
    trained = {n: h for n, h in recipe.dense_heads.items() if h.learns(n, stage.freeze, default)}
    heads = [
        head.kind if name in trained or name in recipe.fitted_heads else f"({head.kind})"
        for name, head in recipe.heads.items()
    ]
    encoders = [
        f"({encoder.kind})" if name in stage.freeze else encoder.kind for name, encoder in recipe.encoders.items()
    ]
    losses = dict.fromkeys(head.loss.kind for head in trained.values() if head.loss is not None)
    return (
        " + ".join(encoders),
        " + ".join(heads),
        ", ".join(losses),
        f"{recipe.batching.batch_size:,}",
        recipe.batching.order.kind,
        *_labels(recipe.batching, stage.space),
        str(recipe.training.epochs),
    )


def _labels(batching: Batching, space: str | None) -> tuple[str, str]:
    """Return which positives and which labels are in a step."""
    if not isinstance(batching, SampledBatching):
        return "all", f"all {space or 'labels'}" if batching.labels == "all" else "from another head"
    count = getattr(batching.positives, "count", None)
    positives = f"{count} at random" if count else batching.positives.pick
    if batching.by_label:
        positives = "one query a label"
    extra = {name: getattr(batching.negatives, name) for name in ("mined", "bm25", "uniform")}
    added = [f"{number} {name}" for name, number in extra.items() if number]
    return positives, " + ".join([batching.labels if added else "in batch", *added])


def _prediction(recipe: Recipe) -> str:
    last = recipe.stage_recipes()[-1][1]
    weights = recipe.predict.weights
    if len(last.heads) == 1:
        return "its head"
    if recipe.predict.cascade is not None:
        return "product, coarse to fine"
    if isinstance(weights, dict):
        return "sum, given weights"
    return {"equal": "sum", "validation": "sum, weights from validation"}.get(weights, weights)


def _published(name: str) -> str:
    sets = dict.fromkeys(figures.data for figures in load_published(name))
    return f"{len(sets)} set{'s' * (len(sets) != 1)}" if sets else "-"
