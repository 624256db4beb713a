"""What a training takes, before it starts: steps, texts to encode, memory of label vectors, hours on a CPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from megalabel.batching.settings import PoolBatching, SampledBatching

if TYPE_CHECKING:
    from megalabel.recipes.schema import Recipe

__all__ = ["Sizes", "TrainingCost", "training_cost"]

PASSES = 4  # forward, forward again for the gradient, and a backward that costs two
PRODUCTS = 4  # of queries and labels, to score and to get the gradients of both sides
PER_TOKEN = {"transformer": 9e7, "bag": 2e4, "inception": 1e6}  # operations of one forward pass, in order of size
PER_WORD = 1.4  # tokens
PER_CORE = 5e10  # operations a second of one core
VECTOR = 768  # numbers of an encoder's vector where the recipe does not say


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large a set is, and how long its texts are."""

    points: int
    labels: int
    labels_per_point: float = 5.0
    words: float | None = None  # of a point; None takes the longest the recipe lets through
    label_words: float | None = None


@dataclass(frozen=True, slots=True)
class TrainingCost:
    """Steps, texts encoded in all, operations, and bytes of the label vectors of one step with their gradients."""

    steps: int
    texts: float
    operations: float
    label_bytes: float

    def hours(self, cores: int) -> float:
        """Return the hours on so many cores, to the order of size."""
        return self.operations / (PER_CORE * max(1, cores)) / 3600


def training_cost(recipe: Recipe, sizes: Sizes) -> TrainingCost:
    """Estimate a training from what its recipe says; right to a factor of a few.

    Counted are the passes through the encoder and the products of queries with labels;
    mining, evaluation and a refit are not. Stages are trained one after the other.

    >>> from megalabel.recipes import load_recipe
    >>> cost = training_cost(load_recipe("dexml"), Sizes(294_805, 131_073, 2.3, words=7, label_words=7))
    >>> cost.steps, f"{cost.texts:.1e}", f"{cost.hours(2) / 24:,.0f} days"
    (9900, '1.3e+09', '655 days')
    """
    parts = []
    for _, own in recipe.stage_recipes():
        size = sizes.labels if own.space is None else min(own.spaces[own.space].size, sizes.labels)
        parts.append(_cost(own, sizes, size))
    return TrainingCost(
        sum(part.steps for part in parts),
        sum(part.texts for part in parts),
        sum(part.operations for part in parts),
        max(part.label_bytes for part in parts),
    )


def _cost(recipe: Recipe, sizes: Sizes, labels: int) -> TrainingCost:
    batch = min(recipe.batching.size(sizes.points), sizes.points)
    steps = -(-sizes.points // batch) * recipe.training.epochs
    pool, scored = _pool(recipe, sizes, batch, labels)
    kind, passes = recipe.encoder.kind, 1 if set(recipe.encoders) <= set(recipe.freeze) else PASSES
    read = pool if any(head.reads_text for head in recipe.heads.values()) else 0.0
    tokens = batch * _tokens(sizes.words, recipe.encoder.query_length)
    tokens += read * _tokens(sizes.label_words, recipe.encoder.label_length)
    whole = getattr(recipe.encoder.options, "dim", VECTOR)
    dims = [head.dim or whole for head in recipe.dense_heads.values() if head.loss is not None]
    products = sum(2.0 * batch * scored * dim * PRODUCTS for dim in dims)
    operations = steps * (passes * tokens * PER_TOKEN[kind] + products)
    return TrainingCost(steps, steps * (batch + read), operations, 2 * 4 * pool * sum(dims))


def _pool(recipe: Recipe, sizes: Sizes, batch: int, labels: int) -> tuple[float, float]:
    """Return the labels of one step, and how many of them each query is scored against."""
    batching = recipe.batching
    if not isinstance(batching, SampledBatching):
        return float(labels), float(labels)
    positives = min(batching.positives.expected(sizes.labels_per_point), sizes.labels_per_point)
    each = positives + batching.negatives.mined
    if not isinstance(batching, PoolBatching):
        each += batching.negatives.uniform
        return min(batch * each, float(labels)), each
    pool = min(batch * each + batching.negatives.uniform, float(labels), float(batching.cap or labels))
    return pool, pool


def _tokens(words: float | None, longest: int | None) -> float:
    """Return the tokens of a text, cut to what the recipe lets through."""
    limit = float(longest or 512)
    return limit if words is None else min(limit, PER_WORD * words + 2)
