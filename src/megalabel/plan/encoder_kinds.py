"""Encoders as numbers: how many weights, how much a text takes in memory and work, without loading any."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from megalabel.plan.sizes import TextSize

__all__ = ["VOCABULARY", "BagSize", "EncoderSize", "InceptionSize", "TransformerSize"]

VOCABULARY = 30_522  # subwords of MiniLM, as of BERT
GROUP = 4_096  # tokens that go through a transformer at once
_SPECIAL = 2  # tokens that a model puts around a text


class EncoderSize(Protocol):
    """What a plan wants to know of an encoder."""

    @property
    def dim(self) -> int:
        """Size of a vector."""
        ...

    @property
    def dense(self) -> int:
        """Weights that get dense gradients."""
        ...

    @property
    def table(self) -> tuple[int, int]:
        """Rows and numbers a row of the table that gets sparse gradients; (0, 0) for none."""
        ...

    def items(self, text: TextSize, length: int | None) -> float:
        """Return the tokens or features of a text that count."""
        ...

    def graph(self, items: float, texts: float, *, gpu: bool, half: bool) -> float:
        """Return the bytes that texts of so many items in all hold from forward to backward."""
        ...

    def backward(self, items: float, texts: float) -> float:
        """Return the bytes of the gradients that are on their way through it at a time."""
        ...

    def flops(self, items: float) -> float:
        """Return the operations of the forward pass of one text."""
        ...

    def touched(self, text: TextSize, texts: float) -> float:
        """Return how many rows of the table so many texts touch."""
        ...


@dataclass(frozen=True)
class TransformerSize:
    """A transformer of the BERT family.

    >>> TransformerSize(6, 768, 12, 3072, 30_522, 512, 0).dense  # DistilBERT
    66362880
    """

    layers: int
    hidden: int
    heads: int
    inner: int
    vocabulary: int
    positions: int
    segments: int
    pooled: int = 1  # layers that are pooled
    projection: int | None = None
    dropout: bool = True
    longest: int = 128

    @property
    def dim(self) -> int:
        """Size of a vector."""
        return self.projection or self.pooled * self.hidden

    @property
    def dense(self) -> int:
        """Weights: embeddings, layers, projection."""
        h = self.hidden
        embeddings = (self.vocabulary + self.positions + self.segments) * h + 2 * h
        layer = 4 * (h * h + h) + 2 * h * self.inner + self.inner + h + 4 * h
        return embeddings + self.layers * layer + (self.projection or 0) * self.pooled * h

    @property
    def table(self) -> tuple[int, int]:
        """No table: token vectors get dense gradients."""
        return 0, 0

    def items(self, text: TextSize, length: int | None) -> float:
        """Return the tokens of a text with the special ones."""
        return min(text.tokens + _SPECIAL, length or self.longest)

    def graph(self, items: float, texts: float, *, gpu: bool, half: bool) -> float:
        """Return what a token leaves behind in every layer, times the tokens.

        Four states of attention (query, key, value, result), two of the inner layer, two sums and two
        normalised states, and noise where there is dropout. Attention weights are kept on a CPU only.
        """
        h, layers = self.hidden, self.layers
        products = layers * (4 * h + 2 * self.inner)
        states = (4 * layers + 1) * h
        noise = self.dropout * (2 * layers + 1) * h
        if gpu:
            each = 2 * products + 4 * states + 4 * layers * h if half else 4 * (products + states)
            return items * (each + noise)
        weights = layers * self.heads * items / max(1.0, texts) * (2 if self.dropout else 1)
        return items * 4 * (products + states + noise + weights)

    def backward(self, items: float, texts: float) -> float:
        """Return four states of the inner layer of the tokens that go through at once."""
        return 4 * self.inner * 4 * min(items, GROUP)

    def flops(self, items: float) -> float:
        """Return two operations for each weight of the layers and token, and the products of attention."""
        h = self.hidden
        layer = 2 * (4 * h * h + 2 * h * self.inner) + 4 * items * h
        return items * self.layers * layer + 2 * (self.projection or 0) * self.pooled * h

    def touched(self, text: TextSize, texts: float) -> float:
        """No table."""
        return 0.0


@dataclass(frozen=True)
class BagSize:
    """A bag of features: a table, a weight for each of its rows, and a residual layer."""

    dim: int = 384
    subwords: int = VOCABULARY
    words: int = 32_768
    bigrams: int = 32_768
    characters: int = 32_768
    ngrams: tuple[int, ...] = (3, 4, 5)
    residual: bool = True
    thin: float = 0.0
    longest: int | None = None

    @property
    def rows(self) -> dict[str, int]:
        """Rows of the table by kind."""
        kinds = ("subwords", "words", "bigrams", "characters")
        return {kind: int(getattr(self, kind)) for kind in kinds}

    @property
    def dense(self) -> int:
        """The residual layer."""
        return self.dim**2 if self.residual else 0

    @property
    def table(self) -> tuple[int, int]:
        """Vectors and weights of the features."""
        return sum(self.rows.values()), self.dim + 1

    def items(self, text: TextSize, length: int | None) -> float:
        """Return the features of a text."""
        found = sum(count for kind, count in text.features(self.ngrams).items() if self.rows[kind])
        most = length or self.longest
        return found if most is None else min(found, most)

    def graph(self, items: float, texts: float, *, gpu: bool, half: bool) -> float:
        """Return sum, scaled sum and residual of each text, and the row numbers and weights of its features."""
        return texts * (3 if self.residual else 2) * 4 * self.dim + 12 * items

    def backward(self, items: float, texts: float) -> float:
        """Return four vectors for each text."""
        return 4 * texts * 4 * self.dim

    def flops(self, items: float) -> float:
        """Return the sum of the rows and the product of the residual layer."""
        return 2 * items * self.dim + 2 * self.dense

    def touched(self, text: TextSize, texts: float) -> float:
        """Return how many rows of the table so many texts touch."""
        found = text.features(self.ngrams)
        rows = self.rows
        return sum(text.different(kind, (1 - self.thin) * texts * found[kind], rows[kind]) for kind in rows)


@dataclass(frozen=True)
class InceptionSize:
    """Token vectors, attention over tokens and convolutions along the vectors."""

    dim: int = 384
    subwords: int = VOCABULARY
    channels: int = 8
    filters: int = 16
    bins: int = 10
    attention: int = 16
    longest: int = 32

    @property
    def found(self) -> int:
        """Numbers that three convolutions find in a text."""
        return 3 * self.filters * self.bins

    @property
    def dense(self) -> int:
        """Attention both ways, channels, kernels of widths 4, 8 and 16, and the dense layer."""
        kernels = self.filters * self.channels * (4 + 8 + 16)
        return (
            4 * self.attention * self.dim + (self.channels - 1) * self.longest + kernels + self.found * (1 + self.dim)
        )

    @property
    def table(self) -> tuple[int, int]:
        """Vectors and weights of the tokens."""
        return self.subwords, self.dim + 1

    def items(self, text: TextSize, length: int | None) -> float:
        """Return the tokens of a text."""
        return min(text.tokens, length or self.longest, self.longest)

    def graph(self, items: float, texts: float, *, gpu: bool, half: bool) -> float:
        """Return vectors and keys of the tokens, the channels of each text and what was found in them."""
        tokens = items * 4 * (self.dim + 2 * self.attention + 3 * self.channels + 3 * items / max(1.0, texts))
        return tokens + texts * (4 * self.dim * (self.channels + 4) + (4 + 8 + 4) * self.found)

    def backward(self, items: float, texts: float) -> float:
        """Return the channels of each text, and the vectors of its tokens."""
        return 4 * self.dim * (texts * (self.channels + 4) + items)

    def flops(self, items: float) -> float:
        """Return attention, mixing, three convolutions and the dense layer."""
        mixing = 2 * items * self.dim * (2 * self.attention + self.channels) + 4 * items**2 * self.attention
        return mixing + 12 * self.dim * self.channels * self.filters + 2 * self.found * self.dim

    def touched(self, text: TextSize, texts: float) -> float:
        """Return how many token vectors so many texts touch."""
        return text.different("subwords", texts * text.tokens, self.subwords)
