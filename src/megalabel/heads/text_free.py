"""Head ``text_free``: the label's text plus a free correction that starts at zero."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from torch import nn

from megalabel.heads.dense import DenseHead, DenseSettings, embed_rows
from megalabel.heads.head import register
from megalabel.settings import Dropout

if TYPE_CHECKING:
    from torch import Tensor

    from megalabel.heads.cost import HeadCost, HeadWorkload
    from megalabel.heads.head import NewTexts
    from megalabel.heads.live import Part

__all__ = ["TextFreeHead", "TextFreeSettings"]


@register
class TextFreeSettings(DenseSettings):
    """Label vectors are encoded texts plus learnt rows."""

    reads_text: ClassVar[bool] = True
    has_table: ClassVar[bool] = True

    kind: Literal["text_free"] = "text_free"
    label_encoder: str | None = None  # a second encoder for label texts; None ties both towers
    row_dropout: Dropout = 0.0

    def cost(self, workload: HeadWorkload) -> HeadCost:
        """Return what all dense heads have, and the noise and the result of row dropout."""
        cost = super().cost(workload)
        return replace(cost, saved=cost.saved + 2 * (self.row_dropout > 0))

    def build(self, **arguments: Any) -> TextFreeHead:
        """Return the head; see :meth:`DenseSettings.build`."""
        return TextFreeHead(self, **arguments)


class TextFreeHead(DenseHead):
    """w_l = f(z_l) + eta_l, eta_l = 0 at the start.

    The classifier of SiameseXML (Dahiya et al., ICML 2021) and NGAME (Dahiya et al., WSDM 2023). A new label has
    no correction; a renamed one keeps its own.
    """

    settings: TextFreeSettings
    table: nn.Parameter

    def __init__(
        self, settings: TextFreeSettings, *, size: int, encoder_dim: int, own: range | None = None, **more: Any
    ) -> None:
        super().__init__(settings, size=size, encoder_dim=encoder_dim, own=own, **more)
        self.table = nn.Parameter(torch.zeros(len(self.own), self.dim))

    @property
    def label_encoder(self) -> str | None:
        """The encoder of label texts; None is the encoder of the queries."""
        return self.settings.label_encoder

    def label_rows(self, pool: Tensor | None, projected: Tensor | None) -> Tensor:
        """Return text vectors plus corrections."""
        if projected is None:
            raise TypeError("a text_free head needs encoded label texts")
        return projected + embed_rows(self.table, pool, self.settings.row_dropout, training=self.training)

    def new_vectors(self, new: NewTexts) -> tuple[Tensor, dict[str, Part]]:
        """Encode the new texts; the correction is zero, or that of the renamed label."""
        texts: Tensor = self.projection(new.encoded(self))
        if new.added:
            return texts, {"free": torch.zeros_like(texts)}
        rows = self.table[torch.from_numpy(new.ids).to(self.table.device)]
        return texts + rows, {"free": rows}
