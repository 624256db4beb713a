"""The encoder of InceptionXML as published: attention both ways, circular convolutions, batch normalisation."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import batch_norm, conv1d, dropout, embedding, gelu, linear, pad

from megalabel.encoders._features import Features
from megalabel.encoders._source import has_minilm
from megalabel.encoders._token_table import TableEncoder, distinct_rows, open_source, start_rows
from megalabel.encoders.spectral import over_spectral_norm
from megalabel.errors import SettingError

if TYPE_CHECKING:
    from megalabel.encoders._base import Layers
    from megalabel.types import Tokens

__all__ = ["BatchNorm", "InceptionXMLEncoder", "pooled_length"]

_STRIDE = 4  # of all convolutions
_SECOND = 16  # window of the second convolution


class InceptionXMLEncoder(TableEncoder):
    r"""Encode a short text as InceptionXML does.

    Kharbanda et al., "InceptionXML: A Lightweight Framework with Synchronized Negative Sampling for Short Text
    Extreme Classification", SIGIR 2023, arXiv 2109.07319, section 3, with the details of the released code. For the
    token vectors X [T, d] of a text, zeros beyond its last token:

    .. math::
        H &= X + \gamma_1\, (X X^T)\, \bar W_1 X, \qquad
        U^T = H^T + \gamma_2\, (H^T X)\, \bar W_2 H^T \\
        M &= \text{drop}(\text{BN}(\text{gelu}(P U + p))) \\
        C &= \text{drop}(\text{BN}(\text{gelu}[\text{conv}_4(M); \text{conv}_8(M); \text{conv}_{16}(M)])) \\
        z &= \text{BN}(\text{gelu}(\text{conv}'_{16}(C))), \qquad
        \text{vector} = z + \text{BN}(\text{gelu}(W\, \text{drop}(z) + b))

    W_1 [T, T] attends over tokens, W_2 [d, d] over dimensions; both are of full rank and divided by their spectral
    norm (:func:`~megalabel.encoders.spectral.over_spectral_norm`), and both gains start at 0. P [filters, T] is a
    convolution of width 1 that mixes positions. All other convolutions run along the d dimensions with stride 4, those
    of M circularly. z is flattened, filters x :func:`pooled_length` numbers: 32 x 15 = 480 for d = 300. The published
    system drops half of the vector again before its classifier: ``query_dropout`` of a head.

    BN is :class:`BatchNorm`. In training a text's vector depends on the texts encoded with it: the distinct texts of a
    step, or of each chunk if they exceed ``training.chunk_size`` ("ghost" batches). The gradient cache encodes a chunk
    twice with the same statistics, and only the first time counts for the running ones, so its gradients are exact
    for statistics of chunks; those of the batch need a ``chunk_size`` that holds it. A vector of ``encode`` uses the
    running statistics and depends on its text alone. Several ranks are refused, their statistics would differ.

    Ours: subwords with the vectors of MiniLM, or hashed words, where the paper has words with those of GloVe; exact
    spectral norms. Texts are padded to the longest one encoded with them, which gives the same result as to T.
    :class:`~megalabel.encoders.InceptionEncoder` is a faster relative without batch normalisation.

    Args:
        source: where tokenizer and token vectors come from, as in :class:`~megalabel.encoders.InceptionEncoder`.
        token_dim: size d of a token vector. Vectors of another size are cut to their main directions.
        words: table rows of whole words if there is no tokenizer; a power of two.
        filters: filters of each convolution.
        token_dropout: share of the numbers in X dropped in training; 0.25 in the paper.
        dropout: share dropped after the layers; 0.25 in the paper.
        max_length: tokens T of a text that are used, from its start.
        seed: seed of the random initial values.

    >>> encoder = InceptionXMLEncoder(None, token_dim=80, words=256, filters=4)
    >>> tokens = encoder.tokenise(["red shoe", "a red shoe", ""])
    >>> encoder.dim, encoder.encode(tokens).shape
    (8, torch.Size([3, 8]))
    """

    kind: ClassVar[str] = "inceptionxml"
    batch_statistics: ClassVar[bool] = True
    windows: ClassVar[tuple[int, ...]] = (4, 8, 16)

    def __init__(
        self,
        source: str | None = "auto",
        *,
        token_dim: int = 300,
        words: int = 32_768,
        filters: int = 32,
        token_dropout: float = 0.0,
        dropout: float = 0.0,
        max_length: int = 32,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.source = ("minilm" if has_minilm() else None) if source == "auto" else source
        self.token_dim, self.words, self.filters, self.max_length = token_dim, words, filters, max_length
        self.token_dropout, self.dropout, self.seed = token_dropout, dropout, seed
        self._check()
        self.dim = filters * pooled_length(token_dim)
        folder, saved, self.tokenizer = open_source(self.source)
        self.features = Features(
            self.tokenizer,
            words=0 if self.tokenizer is not None else words,
            bigrams=0,
            characters=0,
            ngrams=(),
            split="spaces",
        )
        together = filters * len(self.windows)
        self.table = nn.Parameter(torch.empty(self.features.rows, token_dim))
        self.attend_tokens = nn.Parameter(torch.empty(max_length, max_length))  # W_1
        self.attend_dims = nn.Parameter(torch.empty(token_dim, token_dim))  # W_2
        self.gains = nn.Parameter(torch.empty(2))
        self.mix = nn.Parameter(torch.empty(filters, max_length))  # P
        self.kernels = nn.ParameterList(torch.empty(filters, filters, window) for window in self.windows)
        self.second = nn.Parameter(torch.empty(filters, together, _SECOND))
        self.layer = nn.Parameter(torch.empty(self.dim, self.dim))  # W
        sizes = (filters, together, filters, self.dim)
        self.biases = nn.ParameterList(torch.empty(size) for size in sizes)
        self.norms = nn.ModuleList(BatchNorm(size) for size in sizes)
        self._begin(folder, saved=saved)

    def forward(self, tokens: Tokens, max_length: int | None = None, layers: Layers | None = None) -> Tensor:
        """Return vectors [n, dim]; a text is always cut to the encoder's own ``max_length``."""
        self._refuse_layers(layers)
        if len(tokens) == 0:
            return self.table.new_zeros(0, self.dim)
        limit = self.max_length if max_length is None else min(max_length, self.max_length)
        attended = self._attend(self._look_up(tokens.take(np.arange(len(tokens)), limit)))
        bias = list(self.biases)
        mixed = torch.matmul(self.mix[:, : attended.shape[1]], attended) + bias[0].unsqueeze(1)
        mixed = self._drop(self.norms[0](gelu(mixed)))
        maps = torch.cat([_circular(mixed, kernel) for kernel in self.kernels], dim=1) + bias[1].unsqueeze(1)
        maps = self._drop(self.norms[1](gelu(maps)))
        flat: Tensor = self.norms[2](gelu(conv1d(maps, self.second, bias[2], stride=_STRIDE))).flatten(1)
        hidden: Tensor = self.norms[3](gelu(linear(self._drop(flat), self.layer, bias[3])))
        return flat + hidden

    def sparse_parameters(self) -> list[nn.Parameter]:
        """Return the table of token vectors, whose gradient is sparse."""
        return [self.table]

    def fit(self, tokens: Tokens, *more: Tokens) -> Self:
        """Return the encoder as it is: its tokens have no weights."""
        return self

    def _look_up(self, tokens: Tokens) -> Tensor:
        """Return X [n, longest, d] of the texts; the gradient lists each table row once, ascending."""
        rows, places = distinct_rows(tokens, len(self.table))
        lengths = tokens.lengths
        longest = max(1, int(lengths.max()))
        padded = np.full((len(tokens), longest), len(rows), dtype=np.int64)
        padded[np.arange(longest) < lengths[:, None]] = places
        device = self.table.device
        vectors = embedding(torch.from_numpy(rows).to(device), self.table, sparse=True)
        vectors = torch.cat([vectors, vectors.new_zeros(1, self.token_dim)])
        return embedding(torch.from_numpy(padded).to(device), vectors, padding_idx=len(rows))

    def _attend(self, vectors: Tensor) -> Tensor:
        """Return U [n, longest, d] of X [n, longest, d]: products in the order that holds nothing of size [d, d]."""
        vectors = dropout(vectors, self.token_dropout, self.training)
        longest = vectors.shape[1]
        tokens = over_spectral_norm(self.attend_tokens)[:longest, :longest]
        first = vectors + self.gains[0] * ((vectors @ vectors.mT) @ (tokens @ vectors))
        across = linear(first, over_spectral_norm(self.attend_dims))
        return first + self.gains[1] * ((across @ vectors.mT) @ first)

    def _drop(self, values: Tensor) -> Tensor:
        return dropout(values, self.dropout, self.training)

    @torch.no_grad()
    def _start(self, vectors: Tensor | None) -> None:
        """Start matrices and kernels at Xavier's values, gains and biases at zero."""
        generator = torch.Generator().manual_seed(self.seed)
        self.table.normal_(std=self.token_dim**-0.5, generator=generator)
        for matrix in (self.attend_tokens, self.attend_dims):
            matrix.normal_(std=len(matrix) ** -0.5, generator=generator)
        for weight in (self.mix, *self.kernels, self.second, self.layer):
            reach = weight[0, 0].numel()  # width of a kernel
            limit = (6 / (reach * (weight.shape[0] + weight.shape[1]))) ** 0.5
            weight.uniform_(-limit, limit, generator=generator)
        for zero in (self.gains, *self.biases):
            zero.zero_()
        if vectors is not None:
            start_rows(self.table, vectors, self.features.rows)

    def _check(self) -> None:
        if self.words < 1 or self.words & (self.words - 1):
            near = 1 << max(0, self.words - 1).bit_length()
            raise SettingError(f"words is {self.words}", remedy=f"give a power of two such as {near}")
        for name in ("filters", "max_length"):
            if getattr(self, name) < 1:
                raise SettingError(f"{name} is {getattr(self, name)}", remedy="give at least 1")
        if self.token_dim < _STRIDE * _SECOND:
            what = "which the second convolution needs"
            raise SettingError(f"token_dim is {self.token_dim}", remedy=f"give at least {_STRIDE * _SECOND}, {what}")


class BatchNorm(nn.Module):
    r"""Normalise every channel of x [n, c] or [n, c, l] over texts and positions.

    .. math:: \frac{x - \mu_c}{\sqrt{\sigma_c^2 + 10^{-5}}}\, w_c + b_c

    Ioffe and Szegedy, "Batch Normalization", ICML 2015, algorithm 1. In training mu and sigma are those of x, and
    running ones (momentum 0.1, unbiased variance) are updated; otherwise the running ones are used. A channel with one
    value in all has no spread: in training it gives b_c and leaves the running statistics alone.

    >>> BatchNorm(1)(torch.tensor([[1.0], [3.0]])).round(decimals=2).tolist()
    [[-1.0], [1.0]]
    """

    mean: Tensor
    variance: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(size)), nn.Parameter(torch.zeros(size))
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("variance", torch.ones(size))

    def forward(self, values: Tensor) -> Tensor:
        """Return the normalised values, in the type of the weights."""
        values = values.to(self.weight.dtype)
        if self.training and values.numel() == len(self.weight):
            values = torch.zeros_like(values)
            return values + self.bias.view(1, -1, *[1] * (values.dim() - 2)) + 0 * self.weight.sum()
        return batch_norm(values, self.mean, self.variance, self.weight, self.bias, self.training, 0.1, 1e-5)


def pooled_length(token_dim: int) -> int:
    """Return how many positions are left of a token vector after both convolutions.

    >>> pooled_length(300)
    15
    """
    return (token_dim // _STRIDE - _SECOND) // _STRIDE + 1


def _circular(maps: Tensor, kernel: Tensor) -> Tensor:
    """Convolve [n, c, d] with [f, c, w], with stride 4 and both ends joined: [n, f, d // 4] for every even w."""
    around = (kernel.shape[2] - _STRIDE) // 2
    return conv1d(pad(maps, (around, around), mode="circular") if around else maps, kernel, stride=_STRIDE)
