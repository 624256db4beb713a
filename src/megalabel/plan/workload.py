"""A training to be planned: recipe, data sizes and devices, reduced to the numbers that memory and time depend on."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

from megalabel.batching.settings import count_distinct
from megalabel.cost import FLOAT
from megalabel.errors import SettingError
from megalabel.network.cascade import cascade_chain
from megalabel.network.fit import make_ngrams
from megalabel.recipes.effects import mines_once

if TYPE_CHECKING:
    from megalabel.encoders.cost import EncoderCost
    from megalabel.encoders.settings import BaseEncoderSettings
    from megalabel.encoders.text_size import TextSize
    from megalabel.heads.cost import HeadCost
    from megalabel.heads.dense import DenseSettings
    from megalabel.plan.sizes import Sizes
    from megalabel.recipes.schema import Recipe

__all__ = ["EncoderLoad", "HeadLoad", "Side", "Workload"]


@dataclass(frozen=True)
class Side:
    """Texts that one device encodes in a step by one encoder."""

    name: str
    texts: int
    items: float  # tokens or features per text
    text: TextSize


@dataclass(frozen=True)
class EncoderLoad:
    """An encoder and what it reads in a step."""

    name: str
    settings: BaseEncoderSettings
    cost: EncoderCost
    trained: bool
    half: bool  # computes in bfloat16
    query_items: float  # tokens or features per query
    label_items: float
    queries: int  # in a step, over all devices
    labels: int  # label texts in a step, over all devices
    reads_labels: bool  # at any time


@dataclass(frozen=True)
class HeadLoad:
    """A dense head and the labels it scores in a step."""

    name: str
    settings: DenseSettings
    cost: HeadCost
    size: int  # labels in its space
    pool: int  # of them in a step, over all devices
    width: int  # of them scored per query
    listed: bool  # each query has candidates of its own
    frozen: bool
    trained: bool  # its loss is part of a step

    @property
    def dim(self) -> int:
        """Size of its vectors."""
        return self.cost.dim

    @property
    def label_width(self) -> float:
        """Numbers of float32 that a label vector of a step takes: half as many if a half table is used as it is."""
        as_held = self.pool == self.size and not self.listed and not self.settings.normalise
        return self.dim * (self.cost.table_bytes / FLOAT if as_held and self.cost.table else 1.0)

    @property
    def text(self) -> bool:
        """Whether it reads label texts."""
        return self.settings.reads_text

    @property
    def projects(self) -> bool:
        """Whether it projects label texts."""
        return self.text and self.settings.projection != "none"

    def passes(self) -> int:
        """Return the passes of its loss over the labels."""
        return 0 if self.settings.loss is None else self.settings.loss.cost()[0]

    def products(self, anchors: float) -> float:
        """Return the products of its loss, ``anchors`` being the labels with a positive in a step."""
        if self.settings.loss is None:
            return 0.0
        return 3 if self.listed else self.settings.loss.cost(min(1.0, anchors / self.pool))[1]


@dataclass(frozen=True)
class Workload:
    """A recipe, or one stage of it, on data of some size, on one of ``devices`` that share labels and texts."""

    recipe: Recipe
    sizes: Sizes
    devices: int = 1
    gpu: bool = False
    stage: str = ""  # its name in a recipe with stages
    grouped: int | None = None  # labels that are partitioned into groups before it

    def __post_init__(self) -> None:
        if self.devices < 1:
            raise SettingError(f"devices is {self.devices}", remedy="give at least 1")

    def stages(self) -> list[Workload]:
        """Return the workload of each stage; a recipe without stages has one."""
        loads = []
        for stage, recipe in self.recipe.stage_recipes():
            sizes, labels = self.sizes, self.sizes.labels
            if recipe.space is not None:
                groups = recipe.spaces[recipe.space].count(labels)
                each = min(sizes.labels_per_point, groups)
                sizes = replace(sizes, labels=groups, labels_per_point=each, label=sizes.label.times(labels / groups))
            name = stage.name if self.recipe.stages else ""
            grouped = labels if recipe.spaces else None
            loads.append(replace(self, recipe=recipe, sizes=sizes, stage=name, grouped=grouped))
        return loads

    def own(self, count: float) -> int:
        """Return the share of one device."""
        return math.ceil(count / self.devices)

    # ------------------------------------------------------------------ what heads ask

    @property
    def points(self) -> int:
        """Train points."""
        return self.sizes.points

    @property
    def labels(self) -> int:
        """Labels, or groups of labels in a stage over groups."""
        return self.sizes.labels

    @property
    def labels_per_point(self) -> float:
        """Mean number of labels of a point."""
        return self.sizes.labels_per_point

    @cached_property
    def ngram_columns(self) -> dict[str, int]:
        """Columns of the n-grams that fitted heads read, by kind."""
        ngrams = make_ngrams(self.recipe.ngrams.options(), self.sizes.query.words)
        return {"words": ngrams.words, "bigrams": ngrams.bigrams, "characters": ngrams.characters}

    @property
    def ngrams_per_text(self) -> float:
        """Mean number of n-grams of a query."""
        counts = self.sizes.query.features()
        return sum(counts[kind] for kind, columns in self.ngram_columns.items() if columns)

    @property
    def all_labels(self) -> bool:
        """Whether every label is in every step."""
        return self.recipe.batching.labels == "all"

    def encoder_dim(self, head: DenseSettings) -> int:
        """Return the size of the vectors that a head's queries come with."""
        return self._costs[head.query_encoder(next(iter(self._costs)))].dim

    def groups(self, head: DenseSettings) -> int:
        """Return how many groups the head that proposes candidates to a head scores."""
        return 0 if head.candidates is None else self._space_size(self.recipe.dense_heads[head.candidates.source])

    def head_dim(self, name: str) -> int:
        """Return the size of the query vectors of a dense head."""
        head = self.recipe.dense_heads[name]
        return head.dim or self.encoder_dim(head)

    # ------------------------------------------------------------------ steps

    @cached_property
    def rows(self) -> int:
        """Rows of an epoch, augmented and validation ones included: what a refit has."""
        return self._with_augmented(self.points)

    def _with_augmented(self, points: int) -> int:
        augment = self.recipe.augment
        return points if augment is None else augment.count_rows(points, self.labels)

    @property
    def _val(self) -> int:
        return self.sizes.validation(self.recipe.training.validation)

    @property
    def validation(self) -> int:
        """Validation rows in an evaluation."""
        return min(self._val, self.recipe.training.evaluate_on or self._val)

    @property
    def batch(self) -> int:
        """Queries of a step, over all devices."""
        return min(self.recipe.batching.size(self._items), self.rows)

    @property
    def steps(self) -> int:
        """Steps of an epoch; a refit, which trains on the validation rows too, has more of them."""
        return math.ceil(self._items / self.batch)

    @property
    def total_steps(self) -> int:
        """Steps of all epochs, or ``max_steps``."""
        training = self.recipe.training
        total = self.steps * training.epochs
        return total if training.max_steps is None else min(total, training.max_steps)

    @property
    def _items(self) -> int:
        """What an epoch goes through: rows, or labels if batches are made of them."""
        return self.recipe.batching.items(self._with_augmented(max(1, self.points - self._val)), self.labels)

    @property
    def chunk(self) -> int:
        """Texts whose activations are held at once."""
        return self.recipe.training.chunk_size

    @property
    def refreshes(self) -> int:
        """How often clusters and hard negatives are computed."""
        recipe = self.recipe
        return recipe.batching.refresh_count(recipe.training.epochs, self.steps, frozen=mines_once(recipe))

    @property
    def pool(self) -> int:
        """Labels in a step, over all devices; an upper bound if batches are clustered, since those share labels."""
        return max((head.pool for head in self._label_heads), default=self.labels)

    @property
    def width(self) -> int:
        """Labels that one query is scored against."""
        return max((head.width for head in self._label_heads), default=self.labels)

    # ------------------------------------------------------------------ its parts

    @cached_property
    def _costs(self) -> dict[str, EncoderCost]:
        return {name: settings.cost() for name, settings in self.recipe.encoders.items()}

    @cached_property
    def heads(self) -> list[HeadLoad]:
        """The dense heads."""
        return [self._head(name, settings) for name, settings in self.recipe.dense_heads.items()]

    def _head(self, name: str, settings: DenseSettings) -> HeadLoad:
        size = self._space_size(settings)
        batching, each = self.recipe.batching, self.labels_per_point
        if settings.candidates is not None:
            source = self.recipe.dense_heads[settings.candidates.source]
            share = 1.0 if source.space == settings.space else size / self._space_size(source)
            width = min(size, math.ceil((settings.candidates.top + each) * share))  # its best, and the positives
            view = count_distinct(self.batch * width, size), width, True
        elif settings.space is not None:
            view = size, size, False
        else:
            pool = batching.pool_size(self.batch, size, each)
            view = pool, batching.labels_per_query(self.batch, size, each), batching.labels == "candidates"
        frozen, default = self.recipe.freeze, next(iter(self.recipe.encoders))
        heads = self.recipe.dense_heads.items()
        sources = {head.candidates.source for _, head in heads if head.candidates is not None}
        trained = name in sources or settings.learns(name, frozen, default)
        return HeadLoad(name, settings, settings.cost(self), size, *view, name in frozen, trained)

    def _space_size(self, head: DenseSettings) -> int:
        """Return the labels or groups that a head scores."""
        if head.space is None:
            return self.labels
        return self.recipe.spaces[head.space].count(self.labels)

    @property
    def trained_heads(self) -> list[HeadLoad]:
        """The dense heads with a loss."""
        return [head for head in self.heads if head.trained]

    @property
    def _label_heads(self) -> list[HeadLoad]:
        return [head for head in self.trained_heads if head.settings.space is None]

    @property
    def dim(self) -> int:
        """Numbers per label over all heads."""
        return sum(head.dim for head in self.heads)

    @property
    def searched(self) -> float:
        """Numbers that a query is multiplied with to find its labels: all, or those along a cascade."""
        cascade, heads = self.recipe.predict.cascade, {head.name: head for head in self.heads}
        if cascade is None:
            return float(self.labels * self.dim)
        chain, beams = cascade_chain(self.recipe.dense_heads), cascade.beams(self.recipe.dense_heads)
        total = float(heads[chain[0]].size * heads[chain[0]].dim)
        for source, head in ((heads[first], heads[second]) for first, second in pairwise(chain)):
            below = 1.0 if source.settings.space == head.settings.space else max(1.0, head.size / source.size)
            total += min(float(head.size), beams[source.name] * below) * head.dim
        return total

    @property
    def mining_head(self) -> HeadLoad:
        """The head whose vectors are clustered and searched, as in ``Network.mining_head``."""
        heads = [head for head in self.heads if head.settings.space is None] or self.heads
        return next((head for head in heads if head.text), heads[0])

    @cached_property
    def encoders(self) -> list[EncoderLoad]:
        """The encoders."""
        default = next(iter(self._costs))
        query_readers = {head.settings.query_encoder(default) for head in self.heads}
        text_heads: dict[str, list[HeadLoad]] = {name: [] for name in self._costs}
        for head in self.heads:
            if head.text:
                text_heads[head.settings.label_text_encoder(default)].append(head)
        precision, loads = self.recipe.training.precision, []
        for name, cost in self._costs.items():
            settings: BaseEncoderSettings = self.recipe.encoders[name]
            readers = [head for head in text_heads[name] if head.trained]
            loads.append(
                EncoderLoad(
                    name, settings, cost,
                    trained=name not in self.recipe.freeze,
                    half=precision == "bfloat16" or (precision == "auto" and self.gpu and cost.autocast),
                    query_items=cost.items(self.sizes.query, settings.query_length),
                    label_items=cost.items(self.sizes.label, settings.label_length),
                    queries=self._queries(name, default) if name in query_readers else 0,
                    labels=max((self._texts(head) for head in readers), default=0),
                    reads_labels=bool(text_heads[name]),
                )
            )  # fmt: skip
        return loads

    def _queries(self, encoder: str, default: str) -> int:
        """Return the texts of train points that an encoder reads in a step: queries, partners, neighbours."""
        heads = [head for head in self.trained_heads if head.settings.query_encoder(default) == encoder]
        partners = self.batch if any(head.settings.centroid_weight for head in heads) else 0
        near = sum(count_distinct(head.pool * head.cost.points, self.rows) for head in heads if head.cost.points)
        return self.batch + partners + near

    def _texts(self, head: HeadLoad) -> int:
        """Return the label texts that a head reads in a step: of its labels, and of those of their neighbours."""
        near = head.cost.points * head.cost.point_labels + head.cost.label_neighbours
        further, others = head.pool * near, head.size - head.pool
        return head.pool + (count_distinct(further, others) if further and others > 0 else 0)

    def sides(self, encoder: EncoderLoad) -> list[Side]:
        """Return the texts that one device encodes in a step by an encoder."""
        labels = encoder.labels if encoder.trained else 0  # those of a frozen encoder are encoded once
        sides = [
            Side("queries", self.own(encoder.queries), encoder.query_items, self.sizes.query),
            Side("label texts", self.own(labels), encoder.label_items, self.sizes.label),
        ]
        return [side for side in sides if side.texts]
