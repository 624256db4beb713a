"""One training to be planned: recipe and sizes brought down to the numbers that memory and time follow from."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from megalabel.errors import SettingError
from megalabel.plan.encoder_size import encoder_size

if TYPE_CHECKING:
    from megalabel.heads.dense import DenseSettings
    from megalabel.plan.encoder_kinds import EncoderSize
    from megalabel.plan.sizes import Sizes
    from megalabel.recipes.schema import Recipe

__all__ = ["Case", "HeadSize"]

HELD_OUT = 10_000  # validation rows that are taken from train at most


@dataclass(frozen=True)
class HeadSize:
    """A head of the network: its settings and the size of its vectors."""

    name: str
    settings: DenseSettings
    dim: int

    @property
    def free(self) -> bool:
        """Whether it has a vector for each label."""
        return self.settings.has_table

    @property
    def text(self) -> bool:
        """Whether it reads label texts."""
        return self.settings.reads_text

    @property
    def trained(self) -> bool:
        """Whether it has a loss."""
        return self.settings.loss is not None

    def matrices(self, encoder_dim: int) -> int:
        """Return the weights of projection and query matrix."""
        projection = {"none": 0, "residual": self.dim**2}.get(
            self.settings.projection, encoder_dim * self.dim + self.dim
        )
        return projection + (self.dim**2 if self.settings.query_matrix else 0)


@dataclass(frozen=True)
class Case:
    """A recipe on data of some size, on one of ``devices`` that share labels and texts between them."""

    recipe: Recipe
    sizes: Sizes
    devices: int = 1
    gpu: bool = False

    def __post_init__(self) -> None:
        if self.devices < 1:
            raise SettingError(f"devices is {self.devices}", remedy="give at least 1")

    @cached_property
    def encoder(self) -> EncoderSize:
        """The size of the encoder."""
        return encoder_size(self.recipe.encoder)

    @cached_property
    def heads(self) -> list[HeadSize]:
        """The heads of the network."""
        return [HeadSize(name, head, head.dim or self.encoder.dim) for name, head in self.recipe.dense_heads.items()]

    @property
    def unit(self) -> str:
        """What texts consist of for the encoder."""
        return "features" if self.recipe.encoder.kind == "bag" else "tokens"

    @property
    def half(self) -> bool:
        """Whether the encoder computes in bfloat16."""
        wanted, kind = self.recipe.training.precision, self.recipe.encoder.kind
        return wanted == "bfloat16" or (wanted == "auto" and self.gpu and kind == "transformer")

    @property
    def reads(self) -> bool:
        """Whether some head wants label texts encoded."""
        return any(head.text for head in self.heads)

    @property
    def learns(self) -> bool:
        """Whether the encoder is trained."""
        return not set(self.recipe.encoders) <= set(self.recipe.freeze)

    @property
    def total_dim(self) -> int:
        """Numbers of a label over all heads."""
        return sum(head.dim for head in self.heads)

    @property
    def mining(self) -> HeadSize:
        """The head that clusters and mines: the first that reads label texts, else the first."""
        return next((head for head in self.heads if head.text), self.heads[0])

    @property
    def own_labels(self) -> int:
        """Labels of one device."""
        return math.ceil(self.sizes.labels / self.devices)

    @property
    def watched(self) -> int:
        """Validation rows that are looked at after an epoch."""
        held = max(1, min(HELD_OUT, round(self.recipe.training.validation * self.sizes.points)))
        return min(held, self.recipe.training.evaluate_on or held)

    @cached_property
    def rows(self) -> int:
        """Rows of an epoch, augmented ones included."""
        augment = self.recipe.augment
        if augment is None:
            return self.sizes.points
        return augment.count_rows(self.sizes.points, self.sizes.labels)

    @property
    def batch(self) -> int:
        """Queries of a step, over all devices."""
        return min(self.recipe.batching.size(self.rows), self.rows)

    @property
    def own_batch(self) -> int:
        """Queries of a step that one device encodes."""
        return math.ceil(self.batch / self.devices)

    @property
    def steps(self) -> int:
        """Steps of an epoch."""
        return math.ceil(self.rows / self.batch)

    @property
    def chunk(self) -> int:
        """Texts whose activations are held at once."""
        return self.recipe.training.chunk_size

    @property
    def all_labels(self) -> bool:
        """Whether every label is in every step."""
        return self.recipe.batching.labels == "all"

    @property
    def refreshes(self) -> int:
        """How often clusters and hard negatives are made."""
        return self.recipe.batching.refresh_count(self.recipe.training.epochs)

    @property
    def width(self) -> int:
        """Labels that one query is scored against."""
        return self.recipe.batching.labels_per_query(self.batch, self.sizes.labels, self.sizes.labels_per_point)

    @cached_property
    def pool(self) -> int:
        """Labels of a step, over all devices; an upper bound where batches are clustered, since those share labels."""
        return self.recipe.batching.pool_size(self.batch, self.sizes.labels, self.sizes.labels_per_point)

    @property
    def own_pool(self) -> int:
        """Labels of a step on one device."""
        return math.ceil(self.pool / self.devices)

    @cached_property
    def query_items(self) -> float:
        """Tokens or features of a query."""
        return self.encoder.items(self.sizes.query, self.recipe.encoder.query_length)

    @cached_property
    def label_items(self) -> float:
        """Tokens or features of a label text."""
        return self.encoder.items(self.sizes.label, self.recipe.encoder.label_length)
