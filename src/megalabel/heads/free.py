"""Head ``free``: a free vector per label, the classifier of one-vs-all systems."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import torch
from pydantic import model_validator
from torch.nn.functional import normalize

from megalabel.heads.dense import DenseHead, DenseSettings, embed_rows, new_table
from megalabel.heads.head import register
from megalabel.settings import Dropout

if TYPE_CHECKING:
    from torch import Tensor

    from megalabel.heads.cost import HeadCost, HeadWorkload
    from megalabel.heads.head import InitData, NewTexts
    from megalabel.heads.live import Part

__all__ = ["FreeHead", "FreeSettings"]

_BLOCK = 16_384  # labels whose texts are encoded at once


@register
class FreeSettings(DenseSettings):
    """Label vectors are learnt rows of a table."""

    has_table: ClassVar[bool] = True

    kind: Literal["free"] = "free"
    row_dropout: Dropout = 0.0
    init: Literal["random", "text", "points", "mix"] = "random"

    @model_validator(mode="after")
    def _check_init(self) -> Self:
        self.require(self.loss is not None, "row_dropout", "loss is null, the head is not trained")
        if self.space is not None and self.init in ("text", "mix"):
            raise ValueError(f"init is {self.init}, but groups of labels have no text: choose points or random")
        return self

    def cost(self, workload: HeadWorkload) -> HeadCost:
        """Return what all dense heads have, and the noise and the result of row dropout."""
        cost = super().cost(workload)
        return replace(cost, saved=cost.saved + 2 * (self.row_dropout > 0), init_from_texts=self.init != "random")

    def build(self, **arguments: Any) -> FreeHead:
        """Return the head; see :meth:`DenseSettings.build`."""
        return FreeHead(self, **arguments)


class FreeHead(DenseHead):
    """w_l is a row of a table [L, d]: Astec, InceptionXML, Renee and the classifier of UniDEC.

    The rows of a pool have a sparse gradient, so that an optimiser with row-wise updates touches only them; with
    every label in the step the gradient is dense.

    ``init`` is where rows start. ``random``: Xavier. ``text``: the vector the label's text has as a query of this
    head. ``points``: the mean of the vectors of the label's train points, weighted by relevance. ``mix``: half of
    each; a label without points has its text alone.

    A new label gets the mean of the rows of the nearest labels by text, scaled to the norm of rare labels. A
    renamed label keeps its row.
    """

    settings: FreeSettings
    table: torch.nn.Parameter

    def __init__(
        self, settings: FreeSettings, *, size: int, encoder_dim: int, own: range | None = None, **more: Any
    ) -> None:
        super().__init__(settings, size=size, encoder_dim=encoder_dim, own=own, **more)
        self.table = new_table(size, self.dim, own)

    def label_rows(self, pool: Tensor | None, projected: Tensor | None) -> Tensor:
        """Return the rows of the pool."""
        return embed_rows(self.table, pool, self.settings.row_dropout, training=self.training)

    def init_table(self, data: InitData) -> Tensor | None:
        """Set the rows as ``init`` says; return the mean of all points if it was computed."""
        how = self.settings.init
        if how == "random":
            return None
        mean = None if how == "text" else self.add_points(data, self.table)
        pointless = torch.from_numpy(self.point_weights(data) == 0).to(self.table.device).unsqueeze(1)
        scale = 1.0 if self.bias is None else self.temperature()  # which queries are divided by
        for start in range(0, len(self.table), _BLOCK):
            rows = slice(start, min(start + _BLOCK, len(self.table)))
            texts = data.texts(data.own.start + rows.start, data.own.start + rows.stop).to(self.table)
            points = self.table[rows]
            vectors = texts if how == "text" else points if how == "points" else (texts + points) / 2
            self.table[rows] = torch.where(pointless[rows], texts, vectors) * scale
        return mean

    def new_vectors(self, new: NewTexts) -> tuple[Tensor, dict[str, Part]]:
        """Mix the rows of the nearest labels, or keep the row of a renamed label."""
        if not new.added:
            rows = self.table[torch.from_numpy(new.ids).to(self.table.device)]
            return rows, {"free": rows}
        ids, weights = (part.to(self.table.device) for part in new.nearest())
        mixed = torch.bmm(weights.unsqueeze(1), self.table[ids]).squeeze(1)
        norm = torch.linalg.vector_norm(self.table[new.rare], dim=1).median()
        vectors = normalize(mixed, dim=1) * norm
        return vectors, {"free": vectors}
