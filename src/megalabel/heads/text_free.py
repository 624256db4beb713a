"""Head ``text_free``: the label's text plus a free correction that starts at zero."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import torch
from pydantic import model_validator
from torch import nn
from torch.nn.functional import normalize

from megalabel.heads.dense import DenseHead, LabelTextSettings
from megalabel.heads.dense.tables import embed_rows
from megalabel.heads.head import register
from megalabel.settings import Dropout

if TYPE_CHECKING:
    from torch import Tensor

    from megalabel.heads.cost import HeadCost, HeadWorkload
    from megalabel.heads.head import NewTexts
    from megalabel.heads.live import Part

__all__ = ["TextFreeHead", "TextFreeSettings"]


@register
class TextFreeSettings(LabelTextSettings):
    """Label vectors are encoded texts plus learnt rows."""

    has_table: ClassVar[bool] = True
    corrects_text: ClassVar[bool] = True
    noise_keys: ClassVar[tuple[str, ...]] = (*LabelTextSettings.noise_keys, "row_dropout")

    kind: Literal["text_free"] = "text_free"
    row_dropout: Dropout = 0.0
    unit_text: bool = False  # the text's vector has length 1 before the correction is added

    @model_validator(mode="after")
    def _check_unit_text(self) -> Self:
        self.require(self.loss is not None, "unit_text", "loss is null, and there is no correction")
        return self

    @model_validator(mode="after")
    def _check_row_dropout(self) -> Self:
        self.require(self.loss is not None, "row_dropout", "loss is null, the head is not trained")
        return self

    def cost(self, workload: HeadWorkload) -> HeadCost:
        """Return the cost of all dense heads, plus mask and result of row dropout, and unit vectors of texts."""
        cost = super().cost(workload)
        return replace(cost, saved=cost.saved + 2 * (self.row_dropout > 0) + self.unit_text)

    def build(self, **arguments: Any) -> TextFreeHead:
        """Return the head; see :meth:`DenseSettings.build`."""
        return TextFreeHead(self, **arguments)


class TextFreeHead(DenseHead):
    """w_l = f(z_l) + eta_l, with eta_l initially 0; with ``unit_text``, ``f(z_l) / |f(z_l)| + eta_l``.

    The classifier of SiameseXML (Dahiya et al., ICML 2021) and NGAME (Dahiya et al., WSDM 2023), which starts at
    unit vectors and is trained on a frozen encoder. Label texts are then encoded once, not in every step. A new
    label has no correction; a renamed one keeps its own.
    """

    settings: TextFreeSettings
    table: nn.Parameter

    def __init__(
        self, settings: TextFreeSettings, *, size: int, encoder_dim: int, shard: range | None = None, **more: Any
    ) -> None:
        super().__init__(settings, size=size, encoder_dim=encoder_dim, shard=shard, **more)
        self.table = nn.Parameter(torch.zeros(len(self.shard), self.dim))

    def label_rows(self, pool: Tensor | None, projected: Tensor | None) -> Tensor:
        """Return text vectors plus corrections."""
        if projected is None:
            raise TypeError("a text_free head needs encoded label texts")
        rows = embed_rows(self.table, pool, self.settings.row_dropout, training=self.training)
        return self._text(projected) + rows

    def of_texts(self, encoded: Tensor) -> Tensor:
        """Return the vectors of texts without a correction."""
        return self._scaled(self._text(self.project_labels(encoded, search=True)), search=True)

    def _text(self, projected: Tensor) -> Tensor:
        return normalize(projected, dim=1) if self.settings.unit_text else projected

    def new_vectors(self, new: NewTexts) -> tuple[Tensor, dict[str, Part]]:
        """Encode the new texts; the correction is zero, or that of the renamed label."""
        texts = self._text(self.project(new.encoded(self), search=True))
        if new.added:
            return texts, {"free": torch.zeros_like(texts)}
        rows = self.table[torch.from_numpy(new.ids).to(self.table.device)]
        return texts + rows, {"free": rows}
