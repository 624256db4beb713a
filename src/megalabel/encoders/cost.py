"""Memory and computation of encoders, for the plan of a training run, without building them."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from megalabel.cost import FLOAT, Part, in_main_memory, tensor
from megalabel.documents import read_json
from megalabel.encoders._base import GROUP
from megalabel.encoders._source import TOKENIZER, folder_of, has_minilm
from megalabel.encoders._token_table import COUNTED
from megalabel.encoders.inception import InceptionEncoder
from megalabel.errors import DataError, SettingError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from megalabel.encoders.settings import BaseEncoderSettings
    from megalabel.encoders.text_size import TextSize

__all__ = [
    "BagCost",
    "EncoderCost",
    "InceptionCost",
    "TransformerCost",
    "find_tokenizer",
    "subword_rows",
    "transformer_shape",
]

_VOCABULARY = 30_522  # subwords of MiniLM and BERT
_SPECIAL = 2  # tokens a transformer adds to a text
_WINDOWS = InceptionEncoder.windows
_COUNTED_BYTES = 29  # per token while frequencies are counted, as measured
_SHAPE = ("layers", "hidden", "heads", "inner", "vocabulary", "positions", "segments")
_KNOWN = {
    "minilm": (6, 384, 12, 1536, _VOCABULARY, 512, 2),
    "minilm-l6": (6, 384, 12, 1536, _VOCABULARY, 512, 2),
    "minilm-l12": (12, 384, 12, 1536, _VOCABULARY, 512, 2),
    "distilbert": (6, 768, 12, 3072, _VOCABULARY, 512, 0),
    "distilroberta": (6, 768, 12, 3072, 50_265, 514, 1),
    "roberta-base": (12, 768, 12, 3072, 50_265, 514, 1),
    "bert-base": (12, 768, 12, 3072, _VOCABULARY, 512, 2),
    "bert-large": (24, 1024, 16, 4096, _VOCABULARY, 512, 2),
    "mpnet-base": (12, 768, 12, 3072, 30_527, 514, 0),
}


@dataclass(frozen=True)
class EncoderCost:
    """What the plan needs of every kind of encoder."""

    unit: ClassVar[str] = "tokens"  # unit of the length of a text
    token_bytes: ClassVar[int] = 4  # of a stored token
    autocast: ClassVar[bool] = False  # precision auto is bfloat16 on CUDA

    @property
    def dim(self) -> int:
        """Size of a vector."""
        raise NotImplementedError

    @property
    def dense(self) -> int:
        """Weights with dense gradients."""
        return 0

    @property
    def table(self) -> tuple[int, int]:
        """Rows and row length of the table with sparse gradients; (0, 0) for none."""
        return 0, 0

    def items(self, text: TextSize, length: int | None) -> float:
        """Return the tokens or features of a text that are read, at most ``length``."""
        raise NotImplementedError

    def graph(self, items: float, texts: float, *, gpu: bool, half: bool) -> list[Part]:
        """Return what is held from forward to backward of texts with ``items`` tokens in total."""
        raise NotImplementedError

    def backward(self, items: float, texts: float) -> list[Part]:
        """Return the gradients inside the encoder at a time."""
        raise NotImplementedError

    def encoding(self, items: float) -> list[Part]:
        """Return texts of ``items`` tokens each inside the encoder, without a graph."""
        parts = self.backward(GROUP * items, GROUP)
        return [replace(part, name="texts being encoded", how=f"{GROUP:,} at a time") for part in parts]

    def counting(self, items: float, texts: float) -> Part:
        """Return what comes and goes while a table counts in how many texts each token is."""
        counted = min(texts, COUNTED) * items if self.table[0] else 0.0
        return in_main_memory(f"{self.unit} counted", counted, _COUNTED_BYTES)

    def flops(self, items: float) -> float:
        """Return the operations of the forward pass of one text."""
        raise NotImplementedError

    def touched(self, text: TextSize, texts: float) -> float:
        """Return how many table rows this many texts touch."""
        return 0.0


@dataclass(frozen=True)
class TransformerCost(EncoderCost):
    """A transformer of the BERT family.

    >>> TransformerCost(6, 768, 12, 3072, 30_522, 512, 0).dense  # DistilBERT
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
    max_length: int = 128
    batch_tokens: int = 4_096

    token_bytes: ClassVar[int] = 2
    autocast: ClassVar[bool] = True

    @property
    def dim(self) -> int:
        """Size of a vector."""
        return self.projection or self.pooled * self.hidden

    @property
    def dense(self) -> int:
        """Weights of embeddings, layers and projection."""
        h = self.hidden
        embeddings = (self.vocabulary + self.positions + self.segments) * h + 2 * h
        layer = 4 * (h * h + h) + 2 * h * self.inner + self.inner + h + 4 * h
        return embeddings + self.layers * layer + (self.projection or 0) * self.pooled * h

    def items(self, text: TextSize, length: int | None) -> float:
        """Return the tokens of a text, special ones included."""
        return min(text.tokens + _SPECIAL, length or self.max_length)

    def graph(self, items: float, texts: float, *, gpu: bool, half: bool) -> list[Part]:
        """Return what every token leaves in every layer.

        Four attention states (query, key, value, result), two of the inner layer, two sums and two normalised
        states, and dropout noise. Attention weights are kept on a CPU only.
        """
        h, layers = self.hidden, self.layers
        products = layers * (4 * h + 2 * self.inner)
        states = (4 * layers + 1) * h
        noise = self.dropout * (2 * layers + 1) * h
        if gpu:
            each = 2 * products + 4 * states + 4 * layers * h if half else 4 * (products + states)
            size = items * (each + noise)
        else:
            weights = layers * self.heads * items / max(1.0, texts) * (2 if self.dropout else 1)
            size = items * FLOAT * (products + states + noise + weights)
        return [Part("activations", size, pieces=12 * layers)]

    def backward(self, items: float, texts: float) -> list[Part]:
        """Return four inner states of the tokens that are processed together."""
        return [tensor("gradients in the encoder", min(items, self.batch_tokens), self.inner, times=4)]

    def flops(self, items: float) -> float:
        """Return two operations per layer weight and token, and the attention products."""
        h = self.hidden
        layer = 2 * (4 * h * h + 2 * h * self.inner) + 4 * items * h
        return items * self.layers * layer + 2 * (self.projection or 0) * self.pooled * h


@dataclass(frozen=True)
class BagCost(EncoderCost):
    """A bag of features: a table, a weight per row, and a residual layer."""

    size: int
    rows: dict[str, int]  # of the table, by kind of feature
    ngrams: tuple[int, ...] = (3, 4, 5)
    residual: bool = True
    thin: float = 0.0
    max_length: int | None = None

    unit: ClassVar[str] = "features"

    @property
    def dim(self) -> int:
        """Size of a vector."""
        return self.size

    @property
    def dense(self) -> int:
        """Weights of the residual layer."""
        return self.dim**2 if self.residual else 0

    @property
    def table(self) -> tuple[int, int]:
        """Vectors and weights of the features."""
        return sum(self.rows.values()), self.dim + 1

    def items(self, text: TextSize, length: int | None) -> float:
        """Return the features of a text."""
        features = sum(count for kind, count in text.features(self.ngrams).items() if self.rows[kind])
        longest = length or self.max_length
        return features if longest is None else min(features, longest)

    def graph(self, items: float, texts: float, *, gpu: bool, half: bool) -> list[Part]:
        """Return sum, scaled sum and residual of each text, and row numbers and weights of its features."""
        return [Part("activations", texts * (3 if self.residual else 2) * FLOAT * self.dim + 12 * items, pieces=3)]

    def backward(self, items: float, texts: float) -> list[Part]:
        """Return four vectors per text."""
        return [tensor("gradients in the encoder", texts, self.dim, times=4)]

    def flops(self, items: float) -> float:
        """Return the sum of the rows and the product of the residual layer."""
        return 2 * items * self.dim + 2 * self.dense

    def touched(self, text: TextSize, texts: float) -> float:
        """Return how many table rows this many texts touch."""
        counts = text.features(self.ngrams)
        return sum(
            text.distinct(kind, (1 - self.thin) * texts * counts[kind], size) for kind, size in self.rows.items()
        )


@dataclass(frozen=True)
class InceptionCost(EncoderCost):
    """Token vectors, attention over tokens and convolutions along the vectors."""

    size: int
    subwords: int
    channels: int = 8
    filters: int = 16
    bins: int = 10
    attention: int = 16
    max_length: int = 32

    @property
    def dim(self) -> int:
        """Size of a vector."""
        return self.size

    @property
    def pooled(self) -> int:
        """Outputs of the three convolutions."""
        return len(_WINDOWS) * self.filters * self.bins

    @property
    def dense(self) -> int:
        """Weights of attention, channels, kernels and the dense layer."""
        kernels = self.filters * self.channels * sum(_WINDOWS)
        channels = (self.channels - 1) * self.max_length
        return 4 * self.attention * self.dim + channels + kernels + self.pooled * (1 + self.dim)

    @property
    def table(self) -> tuple[int, int]:
        """Vectors and weights of the tokens."""
        return self.subwords, self.dim + 1

    def items(self, text: TextSize, length: int | None) -> float:
        """Return the tokens of a text."""
        return min(text.tokens, length or self.max_length, self.max_length)

    def graph(self, items: float, texts: float, *, gpu: bool, half: bool) -> list[Part]:
        """Return vectors and keys of the tokens, the channels of each text and the outputs of the convolutions."""
        keys = items * FLOAT * (2 * self.attention + 3 * self.channels + 3 * items / max(1.0, texts))
        channels = texts * (FLOAT * self.dim * (self.channels + 4) + (4 + 8 + 4) * self.pooled)
        return [tensor("token vectors", items, self.dim), Part("activations", keys + channels, pieces=8)]

    def backward(self, items: float, texts: float) -> list[Part]:
        """Return the vectors of all tokens, those of texts of each length beside them, and the channels twice."""
        alike = Part("gradients by length of text", items * FLOAT * self.dim, "as large again", pieces=self.max_length)
        channels = tensor("gradients in the encoder", texts, self.dim, times=2 * self.channels + 4)
        return [tensor("gradients of token vectors", items, self.dim), alike, channels]

    def encoding(self, items: float) -> list[Part]:
        """Return vectors and channels of texts of ``items`` tokens each."""
        vectors, _, channels = super().encoding(items)
        return [vectors, channels]

    def flops(self, items: float) -> float:
        """Return attention, mixing, three convolutions and the dense layer."""
        mixing = 2 * items * self.dim * (2 * self.attention + self.channels) + 4 * items**2 * self.attention
        windows = len(_WINDOWS) * 4 * self.dim * self.channels * self.filters  # each moves by half its width
        return mixing + windows + 2 * self.pooled * self.dim

    def touched(self, text: TextSize, texts: float) -> float:
        """Return how many token vectors this many texts touch."""
        return text.distinct("subwords", texts * text.tokens, self.subwords)


# ------------------------------------------------------------------ properties of a model by its name or folder


def subword_rows(source: str | None) -> int:
    """Return the rows of a table of subwords; 0 if there is no tokenizer."""
    tokenised = source is not None and (source != "auto" or has_minilm())
    return _VOCABULARY if tokenised else 0


def find_tokenizer(settings: BaseEncoderSettings) -> Tokenizer | None:
    """Return the tokenizer of an encoder if it is on this machine; reading it takes about 50 ms."""
    source = "minilm" if settings.source == "auto" else settings.source
    path = None if source is None else _find_file(source, TOKENIZER)
    if path is None:
        return None
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception:  # it raises nothing more specific; the training reports what is wrong
        return None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _find_file(source: str, name: str) -> Path | None:
    """Return a file of a model: from its folder, the package that carries MiniLM, or the hub's cache."""
    minilm = folder_of(source) if source == "minilm" and has_minilm() else None
    folders = [minilm or Path(source).expanduser()]
    home = Path(os.environ.get("HF_HOME") or "~/.cache/huggingface").expanduser()
    folders += sorted((home / "hub" / f"models--{source.replace('/', '--')}" / "snapshots").glob("*"))
    return next((folder / name for folder in folders if (folder / name).is_file()), None)


def transformer_shape(source: str) -> dict[str, int]:
    """Return the shape of a model from its config.json, or by its name."""
    path = _find_file(source, "config.json")
    if path is not None:
        return _read_shape(path)
    name = source.lower().rpartition("/")[2]
    for known in sorted(_KNOWN, key=len, reverse=True):
        if known in name:
            return dict(zip(_SHAPE, _KNOWN[known], strict=True))
    raise SettingError(
        f"the size of the encoder {source!r} is not known", remedy=f"give its folder, or one of: {', '.join(_KNOWN)}"
    )


def _read_shape(path: Path) -> dict[str, int]:
    names = {
        "layers": ("num_hidden_layers", "n_layers"),
        "hidden": ("hidden_size", "dim"),
        "heads": ("num_attention_heads", "n_heads"),
        "inner": ("intermediate_size", "hidden_dim"),
        "vocabulary": ("vocab_size",),
        "positions": ("max_position_embeddings",),
    }
    try:
        config = read_json(path)
        shape = {key: next(int(config[name]) for name in keys if name in config) for key, keys in names.items()}
        return {**shape, "segments": int(config.get("type_vocab_size", 0))}
    except (DataError, ValueError, TypeError, OverflowError, StopIteration) as error:
        raise SettingError("this file does not hold the size of a transformer", path=path) from error
