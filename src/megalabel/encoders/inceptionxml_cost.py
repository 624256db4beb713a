"""Memory and computation of the encoder of InceptionXML, for the plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from megalabel.cost import FLOAT, Part, in_main_memory, tensor
from megalabel.encoders.cost import EncoderCost
from megalabel.encoders.inceptionxml import InceptionXMLEncoder, pooled_length

if TYPE_CHECKING:
    from megalabel.encoders.text_size import TextSize

__all__ = ["InceptionXMLCost"]

_WINDOWS = InceptionXMLEncoder.windows
_SECOND = 16  # window of the second convolution
_STRIDE = 4


@dataclass(frozen=True)
class InceptionXMLCost(EncoderCost):
    """Padded token vectors, two attentions, four convolutions and a dense layer.

    >>> InceptionXMLCost(300, 30_522).dim
    480
    """

    token_dim: int
    subwords: int
    filters: int = 32
    dropout: bool = False
    token_dropout: bool = False
    max_length: int = 32

    @property
    def dim(self) -> int:
        """Size of a vector."""
        return self.filters * pooled_length(self.token_dim)

    @property
    def channels(self) -> int:
        """Filters of the three convolutions side by side."""
        return len(_WINDOWS) * self.filters

    @property
    def dense(self) -> int:
        """Weights of both attentions, all kernels, the dense layer, and three vectors for each normalised channel."""
        attention = self.max_length**2 + self.token_dim**2 + 2
        kernels = self.filters * (self.max_length + self.filters * sum(_WINDOWS) + self.channels * _SECOND)
        return attention + kernels + self.dim**2 + 3 * (2 * self.filters + self.channels + self.dim)

    @property
    def table(self) -> tuple[int, int]:
        """Vectors of the tokens."""
        return self.subwords, self.token_dim

    def items(self, text: TextSize, length: int | None) -> float:
        """Return the tokens of a text."""
        return min(text.tokens, length or self.max_length, self.max_length)

    def counting(self, items: float, texts: float) -> Part:
        """Return nothing: its tokens have no weights to count for."""
        return in_main_memory("tokens counted", 0, 0)

    def _maps(self) -> tuple[float, float]:
        """Return the numbers of a text before and after the first convolutions."""
        return self.filters * self.token_dim, self.channels * self.token_dim // _STRIDE

    def graph(self, items: float, texts: float, *, gpu: bool, half: bool) -> list[Part]:
        """Return what every text leaves if all are padded to ``max_length``."""
        wide, narrow = self._maps()
        noise = int(self.dropout)
        maps = texts * FLOAT * ((5 + noise) * wide + (3 + noise) * narrow + (6 + noise) * self.dim)
        times = 8 + self.token_dropout
        return [
            tensor("token vectors", texts * self.max_length, self.token_dim, times=times),
            Part("activations", maps, pieces=12),
        ]

    def backward(self, items: float, texts: float) -> list[Part]:
        """Return gradients of padded token vectors and of the maps around one layer."""
        wide, narrow = self._maps()
        return [
            tensor("gradients of token vectors", texts * self.max_length, self.token_dim, times=3),
            Part("gradients in the encoder", texts * FLOAT * (2 * wide + 2 * narrow), pieces=4),
        ]

    def flops(self, items: float) -> float:
        """Return attention, mixing of positions, convolutions and the dense layer of a padded text."""
        length, d = self.max_length, self.token_dim
        attention = 2 * length * d * (4 * length + length + d)
        convolutions = 2 * d // _STRIDE * self.filters**2 * sum(_WINDOWS)
        second = 2 * self.dim * self.channels * _SECOND
        return attention + 2 * self.filters * length * d + convolutions + second + 2 * self.dim**2

    def touched(self, text: TextSize, texts: float) -> float:
        """Return how many token vectors this many texts touch."""
        return text.distinct("subwords", texts * text.tokens, self.subwords)
