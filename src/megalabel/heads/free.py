"""Head ``free``: a free vector per label, the classifier of one-vs-all systems."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import torch
from pydantic import model_validator
from torch.nn.functional import normalize

from megalabel.graphs import normalise, random_walk
from megalabel.heads.dense import DenseHead, DenseSettings
from megalabel.heads.dense.tables import BLOCK, TableType, embed_rows, new_table
from megalabel.heads.head import register
from megalabel.settings import Dropout

if TYPE_CHECKING:
    from torch import Tensor

    from megalabel.heads.cost import HeadCost, HeadWorkload
    from megalabel.heads.head import InitData, NewTexts
    from megalabel.heads.live import Part

__all__ = ["FreeHead", "FreeSettings"]


@register
class FreeSettings(DenseSettings):
    """Label vectors are learnt rows of a table."""

    has_table: ClassVar[bool] = True
    noise_keys: ClassVar[tuple[str, ...]] = (*DenseSettings.noise_keys, "row_dropout")

    kind: Literal["free"] = "free"
    row_dropout: Dropout = 0.0
    init: Literal["random", "normal", "text", "points", "mix", "graph"] = "random"
    dtype: TableType = "float32"  # of the table

    @model_validator(mode="after")
    def _check_init(self) -> Self:
        self.require(self.loss is not None, "row_dropout", "loss is null, the head is not trained")
        if self.space is not None and self.init in ("text", "mix", "graph"):
            raise ValueError(f"init is {self.init}, but groups of labels have no text: choose points or random")
        return self

    def cost(self, workload: HeadWorkload) -> HeadCost:
        """Return the cost of all dense heads, plus mask and result of row dropout, and memory during ``init``."""
        cost = super().cost(workload)
        half = self.dtype != "float32"
        return replace(
            cost,
            table_bytes=2 if half else 4,
            saved=cost.saved + 2 * (self.row_dropout > 0) + (half and (self.normalise or not workload.all_labels)),
            init_from_texts=self.init not in ("random", "normal"),
            init_labels=2 if self.init == "graph" else int(half and self.init in ("points", "mix")),
        )

    def build(self, **arguments: Any) -> FreeHead:
        """Return the head; see :meth:`DenseSettings.build`."""
        return FreeHead(self, **arguments)


class FreeHead(DenseHead):
    """w_l is a row of a table [L, d]: Astec, InceptionXML, Renee and the classifier of UniDEC.

    The rows of a pool have a sparse gradient, so that an optimiser with row-wise updates touches only them; with
    every label in the step the gradient is dense.

    ``init`` sets the initial rows. ``random``: Xavier. ``normal``: N(0, 0.02), as in Renee (Jain et al., MLSys 2023).
    ``text``: the label's text, encoded as a query of this head. ``points``: the mean vector of the label's train
    points, weighted by relevance. ``mix``: half of each. ``graph``: G F, with F the encoded texts of all labels and G
    the random-walk graph over labels and points (400 hops, restart 0.8, top 10), scaled to D_r^-1/2 G D_c^-1/2, as in
    stage 2 of SiameseXML (Dahiya et al., ICML 2021). A label without points gets its text alone.

    ``dtype`` float16 or bfloat16 halves the memory of the table and of its gradient. Products, sums and updates are
    computed in float32. Updates are rounded stochastically, so that steps below the resolution of the type are not
    lost (:func:`megalabel.training.optim.row_wise.round_stochastically`).

    A new label gets the mean of the rows of the nearest labels by text, scaled to the norm of rare labels. A
    renamed label keeps its row.
    """

    settings: FreeSettings
    table: torch.nn.Parameter

    def __init__(
        self, settings: FreeSettings, *, size: int, encoder_dim: int, shard: range | None = None, **more: Any
    ) -> None:
        super().__init__(settings, size=size, encoder_dim=encoder_dim, shard=shard, **more)
        self.table = new_table(size, self.dim, shard, kind=settings.dtype, normal=settings.init == "normal")

    def label_rows(self, pool: Tensor | None, projected: Tensor | None) -> Tensor:
        """Return the rows of the pool."""
        return embed_rows(self.table, pool, self.settings.row_dropout, training=self.training)

    def init_table(self, data: InitData) -> Tensor | None:
        """Set the rows according to ``init``; return the mean of all points if it was computed."""
        how = self.settings.init
        if how in ("random", "normal"):
            return None
        if how == "graph":
            self._init_from_graph(data)
            return None
        mean = None if how == "text" else self.add_points(data, self.table)
        no_points = torch.from_numpy(self.point_weights(data) == 0).to(self.table.device).unsqueeze(1)
        scale = 1.0 if self.bias is None else self.temperature()  # which queries are divided by
        for start in range(0, len(self.table), BLOCK):
            rows = slice(start, min(start + BLOCK, len(self.table)))
            texts = data.texts(data.shard.start + rows.start, data.shard.start + rows.stop).to(self.table.device)
            points = self.table[rows].to(texts)
            vectors = texts if how == "text" else points if how == "points" else (texts + points) / 2
            self.table[rows] = torch.where(no_points[rows], texts, vectors) * scale
        return mean

    def _init_from_graph(self, data: InitData) -> None:
        """Set each row to the mean of the text vectors of the labels that walks from it visit."""
        graph = normalise(random_walk(data.targets, length=400, reset=0.8, top=10, head=None, seed=data.seed))
        texts = data.all_texts().cpu().numpy()
        scale = 1.0 if self.bias is None else float(self.temperature())
        for start in range(0, len(self.table), BLOCK):
            stop = min(start + BLOCK, len(self.table))
            rows = graph[data.shard.start + start : data.shard.start + stop] @ texts
            self.table[start:stop] = torch.from_numpy(rows).to(self.table.device) * scale

    def new_vectors(self, new: NewTexts) -> tuple[Tensor, dict[str, Part]]:
        """Mix the rows of the nearest labels, or keep the row of a renamed label."""
        if not new.added:
            rows = self.table[torch.from_numpy(new.ids).to(self.table.device)].float()
            return rows, {"free": rows}
        ids, weights = (part.to(self.table.device) for part in new.nearest())
        mixed = torch.bmm(weights.unsqueeze(1), self.table[ids].float()).squeeze(1)
        norm = torch.linalg.vector_norm(self.table[new.rare].float(), dim=1).median()
        vectors = normalize(mixed, dim=1) * norm
        return vectors, {"free": vectors}
