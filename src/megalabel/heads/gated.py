"""Head ``gated``: the label's text and a free vector, mixed by a gate for each dimension."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import torch
from pydantic import model_validator
from torch import nn

from megalabel.heads.dense import DenseHead, LabelTextSettings
from megalabel.heads.dense.projections import make_projection
from megalabel.heads.dense.tables import BLOCK, embed_rows, new_table
from megalabel.heads.head import register
from megalabel.settings import Dropout

if TYPE_CHECKING:
    from torch import Tensor

    from megalabel.heads.cost import HeadCost, HeadWorkload
    from megalabel.heads.head import InitData, NewTexts
    from megalabel.heads.live import Part

__all__ = ["GatedHead", "GatedSettings"]


@register
class GatedSettings(LabelTextSettings):
    """Label vectors are gated sums of encoded texts and learnt rows."""

    has_table: ClassVar[bool] = True
    noise_keys: ClassVar[tuple[str, ...]] = (*LabelTextSettings.noise_keys, "row_dropout")

    kind: Literal["gated"] = "gated"
    row_dropout: Dropout = 0.0

    @model_validator(mode="after")
    def _check_row_dropout(self) -> Self:
        self.require(self.loss is not None, "row_dropout", "loss is null, the head is not trained")
        return self

    @property
    def has_weights(self) -> bool:
        """Whether it learns anything besides its table: it always has gates."""
        return True

    def cost(self, workload: HeadWorkload) -> HeadCost:
        """Return the cost of all dense heads, plus a second projection, the gates and what they keep of a step."""
        cost = super().cost(workload)
        second = cost.matrices - (cost.dim**2 if self.query_matrix else 0)
        return replace(
            cost,
            matrices=cost.matrices + second + 2 * cost.dim,
            saved=cost.saved + 2 + 2 * (self.projection == "gated_residual") + 2 * (self.row_dropout > 0),
            init_from_texts=True,
        )

    def build(self, **arguments: Any) -> GatedHead:
        """Return the head; see :meth:`DenseSettings.build`."""
        return GatedHead(self, **arguments)


class GatedHead(DenseHead):
    r"""The classifier of DECAF (Mittal et al., WSDM 2021, "DECAF: Deep Extreme Classification with Label Features").

    .. math:: w_l = \sigma(\alpha) \odot u_l + \sigma(\beta) \odot v_l, \qquad v_l = R(f(z_l))

    (its equation 3). u_l is a free vector, f(z_l) the encoded text of the label and R a layer of the kind of
    ``projection``, with weights of its own: not those of queries. The gates alpha and beta [d] are shared by all
    labels and start at 0, u_l starts at v_l, so that training starts from w_l = v_l.

    A new label begins in the same way; a renamed one keeps its free vector.

    >>> head = GatedSettings(projection="gated_residual", normalise=False, loss="bce").build(size=5, encoder_dim=4)
    >>> head.labels(torch.tensor([0, 3]), torch.randn(2, 4))[0].shape
    torch.Size([2, 4])
    """

    settings: GatedSettings
    table: nn.Parameter

    def __init__(
        self, settings: GatedSettings, *, size: int, encoder_dim: int, shard: range | None = None, **more: Any
    ) -> None:
        super().__init__(settings, size=size, encoder_dim=encoder_dim, shard=shard, **more)
        self.table = new_table(size, self.dim, shard)
        self.label_projection = make_projection(
            settings.projection, encoder_dim, self.dim, settings.dropout, labels=True
        )
        self.free_gate, self.text_gate = nn.Parameter(torch.zeros(self.dim)), nn.Parameter(torch.zeros(self.dim))

    def project_labels(self, encoded: Tensor, *, search: bool = False) -> Tensor:
        """Return encoded label texts after the layer that is theirs alone."""
        projected: Tensor = self.label_projection(encoded)
        return projected

    def label_rows(self, pool: Tensor | None, projected: Tensor | None) -> Tensor:
        """Return the gated sums of free vectors and texts."""
        if projected is None:
            raise TypeError("a gated head needs encoded label texts")
        return self._mixed(embed_rows(self.table, pool, self.settings.row_dropout, training=self.training), projected)

    def _mixed(self, free: Tensor, texts: Tensor) -> Tensor:
        return self.free_gate.sigmoid() * free + self.text_gate.sigmoid() * texts

    def init_table(self, data: InitData) -> Tensor | None:
        """Set the free vectors to those of the texts."""
        for start in range(0, len(self.table), BLOCK):
            stop = min(start + BLOCK, len(self.table))
            encoded = data.encoded_labels(data.shard.start + start, data.shard.start + stop)
            self.table[start:stop] = self.project_labels(encoded.to(self.table.device), search=True)
        return None

    def new_vectors(self, new: NewTexts) -> tuple[Tensor, dict[str, Part]]:
        """Encode the new texts; the free vector is that of the text, or that of the renamed label."""
        texts = self.project_labels(new.encoded(self), search=True)
        free = texts if new.added else self.table[torch.from_numpy(new.ids).to(self.table.device)]
        return self._mixed(free, texts), {"free": free}
