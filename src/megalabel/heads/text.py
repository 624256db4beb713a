"""Head ``text``: the label's text decides, and nothing is kept per label. The dual encoder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from megalabel.heads.dense import DenseHead, DenseSettings
from megalabel.heads.head import register

if TYPE_CHECKING:
    from torch import Tensor

    from megalabel.heads.head import NewTexts
    from megalabel.heads.live import Part

__all__ = ["TextHead", "TextSettings"]


@register
class TextSettings(DenseSettings):
    """Label vectors are encoded texts."""

    reads_text: ClassVar[bool] = True

    kind: Literal["text"] = "text"
    label_encoder: str | None = None  # a second encoder for label texts; None ties both towers

    def build(self, **arguments: Any) -> TextHead:
        """Return the head; see :meth:`DenseSettings.build`."""
        return TextHead(self, **arguments)


class TextHead(DenseHead):
    """w_l = f(z_l): DPR, DEXML, DePSL and the dual encoder of UniDEC.

    A new label is encoded like any other; so is a renamed one.
    """

    settings: TextSettings

    @property
    def label_encoder(self) -> str | None:
        """The encoder of label texts; None is the encoder of the queries."""
        return self.settings.label_encoder

    def label_rows(self, pool: Tensor | None, projected: Tensor | None) -> Tensor:
        """Return the projected vectors of the label texts."""
        if projected is None:
            raise TypeError("a text head needs encoded label texts")
        return projected

    def new_vectors(self, new: NewTexts) -> tuple[Tensor, dict[str, Part]]:
        """Encode the new texts."""
        vectors: Tensor = self.projection(new.encoded(self))
        return vectors, {}
