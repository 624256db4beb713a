"""Head ``text``: the dual encoder. Labels are scored by their encoded texts; nothing is stored per label."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import model_validator

from megalabel.heads.dense import DenseHead, LabelTextSettings
from megalabel.heads.dense.projections import make_projection
from megalabel.heads.head import register
from megalabel.settings import Fraction

if TYPE_CHECKING:
    from torch import Tensor

    from megalabel.heads.cost import HeadCost, HeadWorkload
    from megalabel.heads.head import NewTexts
    from megalabel.heads.live import Part

__all__ = ["TextHead", "TextSettings"]


@register
class TextSettings(LabelTextSettings):
    """Label vectors are encoded texts."""

    kind: Literal["text"] = "text"
    search_projection: bool = True  # False: the projection is for training only
    own_projection: bool = False  # label texts have one with weights of its own
    centroid: Fraction = 0.0  # weight of the loss of centroids, beside that of queries

    @model_validator(mode="after")
    def _check_search_projection(self) -> Self:
        self.require(self.projection != "none", "search_projection own_projection", "projection is none")
        self.require(self.loss is not None, "centroid search_projection", "loss is null, the head is not trained")
        if not self.search_projection and self.dim is not None:
            raise ValueError("dim: a projection for training only keeps the size of the encoder's vectors")
        if not self.search_projection and self.query_matrix:
            raise ValueError("query_matrix: it is trained on projected vectors, and search_projection is false")
        return self

    @property
    def projects_search(self) -> bool:
        """Whether the projection applies in search too."""
        return self.search_projection

    @property
    def centroid_weight(self) -> float:
        """Weight of the loss of centroids."""
        return self.centroid

    def cost(self, workload: HeadWorkload) -> HeadCost:
        """Return the cost of all dense heads, plus that of a second projection."""
        cost = super().cost(workload)
        second = (cost.matrices - (cost.dim**2 if self.query_matrix else 0)) if self.own_projection else 0
        return replace(cost, matrices=cost.matrices + second)

    def build(self, **arguments: Any) -> TextHead:
        """Return the head; see :meth:`DenseSettings.build`."""
        return TextHead(self, **arguments)


class TextHead(DenseHead):
    """w_l = f(z_l): DPR, DEXML, DePSL and the dual encoder of UniDEC.

    With ``search_projection`` false, the projection is for training only, and search compares the encoder's own
    vectors: unsupervised SimCSE (Gao et al., EMNLP 2021, section 3).

    ``centroid`` = c mixes in a second loss: (1 - c) L(f(x), Z) + c L(g, Z), with g = f(x') + f(z) (then normalised
    as queries are), z the label that x was drawn for and x' another point of it. SiameseXML (Dahiya et al., ICML
    2021) has it in stage 1, c = 0.3. It needs batches that are made of labels.

    With ``own_projection``, label texts have a second projection of the same kind: the surrogate task of DECAF (Mittal
    et al., WSDM 2021) trains such a head on clusters of labels.

    A new label is encoded like any other; so is a renamed one.
    """

    settings: TextSettings

    def __init__(self, settings: TextSettings, *, size: int, encoder_dim: int, **more: Any) -> None:
        super().__init__(settings, size=size, encoder_dim=encoder_dim, **more)
        if settings.own_projection:
            self.label_projection = make_projection(
                settings.projection, encoder_dim, self.dim, settings.dropout, labels=True
            )

    def project(self, encoded: Tensor, *, search: bool = False) -> Tensor:
        """Return encoder vectors after the projection, which may be for training only."""
        return super().project(encoded) if self.settings.search_projection or not search else encoded

    def project_labels(self, encoded: Tensor, *, search: bool = False) -> Tensor:
        """Return encoded label texts after the projection of queries or their own."""
        if not self.settings.own_projection or (search and not self.settings.search_projection):
            return self.project(encoded, search=search)
        projected: Tensor = self.label_projection(encoded)
        return projected

    def new_vectors(self, new: NewTexts) -> tuple[Tensor, dict[str, Part]]:
        """Encode the new texts."""
        return self.project_labels(new.encoded(self), search=True), {}
