"""The encoder of InceptionXML: attention over the tokens of a short text, then convolutions along the vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn.functional import embedding, linear, pad, relu

from megalabel.encoders._features import Features
from megalabel.encoders._source import has_minilm
from megalabel.encoders._token_table import TableEncoder, distinct_rows, idf, open_source, start_rows
from megalabel.errors import SettingError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from megalabel.encoders._base import Layers
    from megalabel.types import Tokens

__all__ = ["InceptionEncoder", "window_maxima"]

_TINY = 1e-12
_NEAR_ZERO = 0.02  # initial scale of the corrections
_BLOCK = 64  # texts whose products stay in the processor's cache


class InceptionEncoder(TableEncoder):
    r"""Encode a short text by attention both ways and convolutions along the embedding dimension.

    The idea is InceptionXML's (Kharbanda et al., "InceptionXML: A Lightweight Framework with
    Synchronized Negative Sampling for Short Text Extreme Classification", SIGIR 2023,
    arXiv 2109.07319): in a short text the order of words says little, so the tokens
    are the *channels* of a 1-D convolution whose windows (4, 8, 16) slide along the embedding
    dimension. For the vectors V [T, d] and weights w [T] of a text's tokens:

    .. math::
        A &= \text{softmax}(V W_q (V W_k)^T / \sqrt{r}), \qquad U = (I + A)\, \text{diag}(w)\, V \\
        H &= P_{:T}\, U\, \text{diag}(g), \qquad g = 2\, \sigma(W_2\, \text{relu}(W_1 \bar u)), \qquad
        \bar u = \mathbf 1^T U / \lVert w \rVert_2 \\
        h &= \text{relu}(\max \text{conv}_4(H), \max \text{conv}_8(H), \max \text{conv}_{16}(H)), \qquad
        \text{vector} = g \circ \bar u + \text{dropout}(W h)

    A is attention over tokens, g attention over dimensions; P [channels, max_length], the last
    row ones, mixes the positions of the text into channels; a convolution moves by half its
    window and keeps the maxima of ``bins`` stretches: h has 3 filters bins numbers.

    From the paper: trained token vectors, attention both ways, a convolution of width 1 over
    positions, then windows of 4, 8 and 16 side by side, a dense layer, 32 tokens. Ours: attention
    of low rank and a gate for the dimensions; maxima instead of a second convolution; no batch
    normalisation, so that a text's vector does not depend on the rest of the batch; token weights that
    start from inverse document frequency; the sum of the token vectors as a shortcut past the
    convolutions, whose part is initially near zero, so that the encoder starts as a good bag of tokens;
    subwords with MiniLM's vectors instead of words with GloVe's. Texts of the same length are
    processed together and nothing is padded. The table V and the weights w get sparse gradients for the
    rows of the step.

    Args:
        source: where tokenizer and token vectors come from: ``"minilm"``, the folder of a model
            (tokenizer.json, model.safetensors), the folder of a saved encoder of this kind
            with the same settings and all its weights, or None for whole words,
            hashed. ``"auto"`` takes MiniLM if its package is installed.
        dim: size of a vector. Token vectors of another size are cut to their main directions.
        words: table rows of whole words if there is no tokenizer; a power of two.
        channels: channels of the convolutions.
        filters: filters of each convolution.
        bins: parts of the embedding dimension that are pooled separately.
        attention: rank r of the attention over tokens, and size of the layer behind g.
        residual: keep the shortcut.
        dropout: share of the convolutions' part of a vector dropped in training.
        max_length: tokens of a text that are used, from its start.
        seed: seed of the random initial values.

    >>> encoder = InceptionEncoder(None, dim=32, words=256, filters=4, bins=2)
    >>> tokens = encoder.tokenise(["red shoe", "a red shoe", "blue hat", ""])
    >>> vectors = encoder.fit(tokens).encode(tokens, normalise=True)
    >>> vectors.shape, bool(vectors[0] @ vectors[1] > vectors[0] @ vectors[2])
    (torch.Size([4, 32]), True)
    """

    kind: ClassVar[str] = "inception"
    windows: ClassVar[tuple[int, ...]] = (4, 8, 16)

    def __init__(
        self,
        source: str | None = "auto",
        *,
        dim: int = 384,
        words: int = 32_768,
        channels: int = 8,
        filters: int = 16,
        bins: int = 10,
        attention: int = 16,
        residual: bool = True,
        dropout: float = 0.0,
        max_length: int = 32,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.source = ("minilm" if has_minilm() else None) if source == "auto" else source
        self.dim, self.words, self.channels, self.filters, self.bins = dim, words, channels, filters, bins
        self.attention, self.residual, self.dropout, self.max_length, self.seed = (
            attention, residual, dropout, max_length, seed,
        )  # fmt: skip
        self._check()
        folder, saved, self.tokenizer = open_source(self.source)
        self.features = Features(
            self.tokenizer,
            words=0 if self.tokenizer is not None else words,
            bigrams=0,
            characters=0,
            ngrams=(),
            split="spaces",
        )
        hidden = len(self.windows) * filters * bins
        self.table = nn.Parameter(torch.empty(self.features.rows, dim))
        self.weights = nn.Parameter(torch.empty(self.features.rows, 1))
        self.attend = nn.Parameter(torch.empty(2 * attention, dim))  # W_q over W_k
        self.squeeze = nn.Parameter(torch.empty(attention, dim))  # W_1
        self.gate = nn.Parameter(torch.empty(dim, attention))  # W_2
        self.mix = nn.Parameter(torch.empty(channels - 1, max_length))  # P but its last row, which is ones
        self.kernels = nn.ParameterList(torch.empty(filters, channels, window) for window in self.windows)
        self.bias = nn.Parameter(torch.empty(hidden))
        self.layer = nn.Parameter(torch.empty(dim, hidden))  # W
        self.drop = nn.Dropout(dropout)
        self._begin(folder, saved=saved)

    def forward(self, tokens: Tokens, max_length: int | None = None, layers: Layers | None = None) -> Tensor:
        """Return vectors [n, dim]; a text is always cut to the encoder's own ``max_length``."""
        self._refuse_layers(layers)
        limit = self.max_length if max_length is None else min(max_length, self.max_length)
        lengths = np.minimum(tokens.lengths, limit)
        order = np.argsort(lengths, kind="stable")
        mixed = self._attend(tokens.take(order, limit), lengths[order])
        sums = mixed[:, :, -1]
        gate = 2 * torch.sigmoid(linear(relu(linear(sums, self.squeeze)), self.gate))
        maxima = window_maxima(mixed, gate, list(self.kernels), self.bins) + self.bias
        vectors: Tensor = self.drop(linear(relu(maxima), self.layer))
        if self.residual:
            vectors = vectors + sums * gate
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        return vectors.index_select(0, torch.from_numpy(back).to(vectors.device))

    def _attend(self, tokens: Tokens, lengths: NDArray[np.int64]) -> Tensor:
        """Return the channels [n, dim, channels] of texts in ascending order of length; the last is the sum of U."""
        vectors, weights = self._look_up(tokens)
        keys = linear(vectors, self.attend) * self.attention**-0.25
        values, counts = np.unique(lengths, return_counts=True)
        sizes = (values * counts).tolist()
        pieces = (torch.split(part, sizes) for part in (vectors, keys, weights))
        groups = [self._attend_alike(*parts) for parts in zip(counts.tolist(), values.tolist(), *pieces, strict=True)]
        return torch.cat(groups) if groups else vectors.new_zeros(0, self.dim, self.channels)

    def _attend_alike(self, count: int, length: int, vectors: Tensor, keys: Tensor, weights: Tensor) -> Tensor:
        """Do the same for ``count`` texts of one length: P (I + A) is made first, so that V is read once."""
        if length == 0:
            return vectors.new_zeros(count, self.dim, self.channels)
        queries, keys = keys.view(count, length, -1).chunk(2, dim=2)
        attention = torch.softmax(queries @ keys.transpose(1, 2), dim=2)
        attention = attention + torch.eye(length, dtype=attention.dtype, device=attention.device)
        weights = weights.view(count, 1, length)
        scale = weights.square().sum(dim=2, keepdim=True).clamp_min(_TINY).rsqrt()
        mixed = torch.cat([self.mix[:, :length], self.mix.new_ones(1, length)])  # the sum is a channel too
        mixed = (mixed @ attention) * (weights * scale)  # [count, channels, length]
        return torch.bmm(vectors.view(count, length, -1).transpose(1, 2), mixed.transpose(1, 2))

    def _look_up(self, tokens: Tokens) -> tuple[Tensor, Tensor]:
        """Return vectors [m, dim] and weights [m, 1] of all tokens; the gradient lists each row once, ascending."""
        rows, places = distinct_rows(tokens, len(self.table))
        positions = torch.from_numpy(places).to(self.table.device)
        chosen = torch.from_numpy(rows).to(self.table.device)
        return embedding(positions, embedding(chosen, self.table, sparse=True)), embedding(
            positions, embedding(chosen, self.weights, sparse=True)
        )

    @torch.no_grad()
    def fit(self, tokens: Tokens, *more: Tokens) -> Self:
        """Start the weights from the inverse document frequency of each token, as :meth:`BagEncoder.fit` does."""
        self.weights.copy_(torch.from_numpy(idf(tokens, self.features.rows, *more)).unsqueeze(1))
        return self

    @torch.no_grad()
    def _start(self, vectors: Tensor | None) -> None:
        """Fill the table with pretrained vectors of mean length 1 or random ones; corrections start near zero."""
        generator = torch.Generator().manual_seed(self.seed)
        self.table.normal_(std=self.dim**-0.5, generator=generator)
        self.weights.fill_(1)
        self.attend.normal_(std=self.dim**-0.5, generator=generator)
        self.squeeze.normal_(generator=generator)
        self.gate.normal_(std=_NEAR_ZERO * self.attention**-0.5, generator=generator)
        self.mix.normal_(generator=generator)
        for kernel in self.kernels:
            kernel.normal_(std=(2 / kernel[0].numel()) ** 0.5, generator=generator)
        self.bias.zero_()
        scale = _NEAR_ZERO if self.residual else 1.0
        self.layer.normal_(std=scale * self.layer.shape[1] ** -0.5, generator=generator)
        if vectors is not None:
            start_rows(self.table, vectors, self.features.rows)

    def _check(self) -> None:
        if self.words < 1 or self.words & (self.words - 1):
            near = 1 << max(0, self.words - 1).bit_length()
            raise SettingError(f"words is {self.words}", remedy=f"give a power of two such as {near}")
        for name in ("channels", "filters", "bins", "attention", "max_length"):
            if getattr(self, name) < 1:
                raise SettingError(f"{name} is {getattr(self, name)}", remedy="give at least 1")
        if self.dim < self.windows[-1]:
            raise SettingError(f"dim is {self.dim}", remedy=f"give at least {self.windows[-1]}, the widest window")


def window_maxima(channels: Tensor, gate: Tensor, kernels: list[Tensor], bins: int) -> Tensor:
    r"""Return [n, bins (all filters)]: the maximum of each filter in each of ``bins`` stretches.

    For channels X [n, dim, c], a gate g [n, dim] and kernels K [filters, c, w], of even w:

    .. math:: m_{ibf} = \max_{j \in b} \sum_{c} \sum_{a < w} K_{fca}\, g_{i, jw/2 + a}\, X_{i, jw/2 + a, c}

    A stretch has ceil(windows / bins) windows, the last ones fewer; one without gives -inf.
    Kernel follows kernel, in each of them filters run fastest. With channels innermost half a
    window is a stretch of memory, so that one product gives the left and the right half of
    every window, and none is copied. Gradients flow through the maxima only. Computes in the
    type of the kernels, also under autocast.

    >>> channels = torch.arange(8.0).view(1, 8, 1)
    >>> window_maxima(channels, torch.ones(1, 8), [torch.ones(1, 1, 4)], bins=2).tolist()  # 0..3, 2..5, 4..7
    [[14.0, 22.0]]
    """
    kind = kernels[0].dtype
    with torch.autocast(channels.device.type, enabled=False):
        maxima: Tensor = _WindowMaxima.apply(channels.to(kind), gate.to(kind), bins, *kernels)  # type: ignore[no-untyped-call]
    return maxima


class _WindowMaxima(Function):
    @staticmethod
    def forward(ctx: Any, channels: Tensor, gate: Tensor, bins: int, *kernels: Tensor) -> Tensor:
        n = len(channels)
        maxima = [channels.new_empty(n, bins, len(kernel)) for kernel in kernels]
        positions = [torch.empty(part.shape, dtype=torch.int64, device=part.device) for part in maxima]
        halves = [_halves(kernel) for kernel in kernels]
        for start in range(0, n, _BLOCK):
            block = slice(start, start + _BLOCK)
            gated = channels[block] * gate[block].unsqueeze(2)
            for (rows, half), best, position in zip(halves, maxima, positions, strict=True):
                filters = len(rows) // 2
                products = _stretches(gated, half) @ rows.T
                windows = products[:, :-1, :filters] + products[:, 1:, filters:]
                each = -(-windows.shape[1] // bins)
                windows = pad(windows, (0, 0, 0, bins * each - windows.shape[1]), value=-torch.inf)
                torch.max(windows.view(-1, bins, each, filters), dim=2, out=(best[block], position[block]))
        ctx.save_for_backward(channels, gate, *kernels, *positions)
        return torch.cat([best.flatten(1) for best in maxima], dim=1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        channels, gate, *rest = ctx.saved_tensors
        kernels, positions = rest[: len(rest) // 2], rest[len(rest) // 2 :]
        gradients = torch.split(gradient, [position[0].numel() for position in positions], dim=1)
        halves = [_halves(kernel) for kernel in kernels]
        of_halves = [torch.zeros_like(rows) for rows, _ in halves]
        of_channels, of_gate = torch.zeros_like(channels), torch.zeros_like(gate)
        for start in range(0, len(channels), _BLOCK):
            block = slice(start, start + _BLOCK)
            gated = channels[block] * gate[block].unsqueeze(2)
            of_gated = torch.zeros_like(gated)
            for (rows, half), total, position, part in zip(halves, of_halves, positions, gradients, strict=True):
                stretches = _stretches(gated, half)
                sent = _send_back(part[block].view(position[block].shape), position[block], stretches.shape[1])
                total.addmm_(sent.flatten(0, 1).T, stretches.flatten(0, 1))
                _stretches(of_gated, half).add_(sent @ rows)
            of_channels[block] = of_gated * gate[block].unsqueeze(2)
            of_gate[block] = of_gated.mul_(channels[block]).sum(dim=2)
        of_kernels = [_whole(total, kernel) for total, kernel in zip(of_halves, kernels, strict=True)]
        return of_channels, of_gate, None, *of_kernels


def _halves(kernel: Tensor) -> tuple[Tensor, int]:
    """Return the left halves of a kernel's filters, then the right ones, [2 filters, w/2 c], and w/2."""
    filters, channels, window = kernel.shape
    half = window // 2
    rows = kernel.view(filters, channels, 2, half).permute(2, 0, 3, 1).reshape(2 * filters, half * channels)
    return rows, half


def _whole(rows: Tensor, kernel: Tensor) -> Tensor:
    """Join the halves again."""
    filters, channels, window = kernel.shape
    return rows.view(2, filters, window // 2, channels).permute(1, 3, 0, 2).reshape(kernel.shape)


def _stretches(gated: Tensor, half: int) -> Tensor:
    """View [b, dim, c] as [b, dim / half, half c]; a remainder at the end is dropped."""
    b, dim, channels = gated.shape
    count = dim // half
    return gated[:, : count * half].view(b, count, half * channels)


def _send_back(gradient: Tensor, position: Tensor, count: int) -> Tensor:
    """Return the gradient [b, count, 2 filters] of the halves, given that of the maxima [b, bins, filters]."""
    b, bins, filters = gradient.shape
    each = -(-(count - 1) // bins)
    windows = gradient.new_zeros(b, bins, each, filters).scatter_(2, position.unsqueeze(2), gradient.unsqueeze(2))
    windows = windows.view(b, bins * each, filters)[:, : count - 1]
    sent = gradient.new_zeros(b, count, 2 * filters)
    sent[:, :-1, :filters] = windows
    sent[:, 1:, filters:] = windows
    return sent
