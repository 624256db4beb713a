"""A bag of features: a weighted sum of table rows, the fastest encoder on a CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import torch
from scipy.sparse import csr_matrix
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn.functional import embedding_bag, linear, relu

from megalabel.encoders._features import Features
from megalabel.encoders._source import has_minilm
from megalabel.encoders._token_table import TableEncoder, idf, open_source, start_rows
from megalabel.errors import SettingError
from megalabel.types import Tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

    from megalabel.encoders._base import BaseEncoder, Layers


__all__ = ["BagEncoder", "weighted_bag"]

_TINY = 1e-12
_BLOCK = 4_096  # table rows that stay in the processor's cache
_NEAR_ZERO = 0.02  # initial scale of the residual layer
_SHARES = {"subwords": 1.0, "words": 1.0, "bigrams": 0.5, "characters": 0.3}  # initial weights, before idf


class BagEncoder(TableEncoder):
    r"""Encode a text as the weighted sum of the vectors of its features, then one residual layer.

    .. math::
        x = \frac{\sum_t w_t V_t}{\sqrt{\sum_t w_t^2}}, \qquad
        \text{vector} = \phi(x + \text{dropout}(\text{relu}(W x)))

    over the subwords of a tokenizer, whole words, pairs of neighbouring words and character
    n-grams of words (Joulin et al. 2017, "Bag of Tricks for Efficient Text Classification",
    section 2; Bojanowski et al. 2017, "Enriching Word Vectors with Subword Information",
    section 3.2). All but subwords are hashed. The table V [rows, dim] and the weights w [rows]
    get sparse gradients: an optimiser with row-wise updates touches the rows of the step only.

    Subwords start from the token vectors of a pretrained model, hashed rows from small random
    vectors, so that texts with common words are near each other from the start; call ``fit``
    with the training texts to set the weights to their inverse document frequency.

    Args:
        source: where tokenizer and token vectors come from: ``"minilm"``, the folder of a model
            (tokenizer.json, model.safetensors), the folder of a saved bag with the same
            settings, with all its weights, or None for hashed features only.
            ``"auto"`` takes MiniLM if its package is installed.
        dim: size of a vector. Token vectors of another size are cut to their main directions.
        words, bigrams, characters: table rows of whole words, word pairs and n-grams; a power
            of two, 0 leaves them out. A row takes 4 dim bytes. Features with the same row share
            its vector; use more rows for millions of texts.
        ngrams: lengths of the character n-grams.
        split: where words end: at spaces, punctuation and, with ``"scripts"``, between the characters of scripts
            without spaces (Chinese, Japanese, Thai, ...) and emoji; ``"spaces"`` takes a run of those as one word.
        residual: add the residual layer.
        dropout: share of the residual layer's output dropped in training.
        activation: phi: ``"none"``, or ``"relu"`` as in DeepXML (Dahiya et al. 2021, "DeepXML: A Deep Extreme
            Multi-Label Learning Framework Applied to Short Text Documents", section 4).
        thin: share of the features of a text left out in training, drawn again each time (Iyyer et
            al. 2015, "Deep Unordered Composition Rivals Syntactic Methods for Text
            Classification", section 3.2): so that no label depends on one feature alone.
        max_length: features of a text that are used, from its start; None uses all.
        seed: seed of the random initial values.

    >>> encoder = BagEncoder(None, dim=16, words=256, bigrams=256, characters=256)
    >>> tokens = encoder.tokenise(["red shoe", "a red shoe", "blue hat", ""])
    >>> vectors = encoder.fit(tokens).encode(tokens, normalise=True)
    >>> vectors.shape, bool(vectors[0] @ vectors[1] > vectors[0] @ vectors[2])
    (torch.Size([4, 16]), True)
    """

    kind: ClassVar[str] = "bag"

    def __init__(
        self,
        source: str | None = "auto",
        *,
        dim: int = 384,
        words: int = 32_768,
        bigrams: int = 32_768,
        characters: int = 32_768,
        ngrams: Sequence[int] = (3, 4, 5),
        split: str = "scripts",
        residual: bool = True,
        dropout: float = 0.0,
        activation: str = "none",
        thin: float = 0.0,
        max_length: int | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.source = ("minilm" if has_minilm() else None) if source == "auto" else source
        self.dim, self.words, self.bigrams, self.characters = dim, words, bigrams, characters
        self.ngrams, self.split = list(ngrams), split
        self.residual, self.dropout, self.activation, self.thin = residual, dropout, activation, thin
        self.max_length, self.seed = max_length, seed
        self._check()
        folder, saved, self.tokenizer = open_source(self.source)
        self.features = Features(
            self.tokenizer, words=words, bigrams=bigrams, characters=characters, ngrams=self.ngrams, split=split
        )
        if self.features.rows == 0:
            raise SettingError("the bag has no features", remedy="give words, bigrams or characters a size")
        self.table = nn.Parameter(torch.empty(self.features.rows, dim))
        self.weights = nn.Parameter(torch.empty(self.features.rows))
        self.layer = nn.Parameter(torch.empty(dim, dim)) if residual else None
        self.drop = nn.Dropout(dropout)
        self._begin(folder, saved=saved)

    def forward(self, tokens: Tokens, max_length: int | None = None, layers: Layers | None = None) -> Tensor:
        """Return vectors [n, dim]; a text without features gives zeros."""
        self._refuse_layers(layers)
        limit = self.max_length if max_length is None else max_length
        if limit is not None:
            tokens = tokens.take(np.arange(len(tokens)), limit)
        if self.training and self.thin:
            tokens = self._thinned(tokens)
        sums, squares = weighted_bag(self.table, self.weights, tokens)
        vectors = sums * squares.clamp_min(_TINY).rsqrt().unsqueeze(1)
        if self.layer is not None:
            vectors = vectors + self.drop(relu(linear(vectors, self.layer)))
        return relu(vectors) if self.activation == "relu" else vectors

    @torch.no_grad()
    def fit(self, tokens: Tokens, *more: Tokens) -> Self:
        r"""Set the weights to the inverse document frequency of each feature in the n texts.

        .. math:: w_t = c_{\text{kind}} \frac{1 + \log((n + 1) / (n_t + 1))}{1 + \log(n + 1)}

        with n_t the texts that have feature t and c the initial weight of its kind. Pass the
        texts of train and labels together: ``encoder.fit(queries, labels)``.
        """
        weights = torch.from_numpy(idf(tokens, self.features.rows, *more))
        self.weights.copy_(self._shares() * weights.to(self.weights))
        return self

    @torch.no_grad()
    def take_over(self, other: BaseEncoder) -> bool:
        """Take the rows of every kind of feature that both have in the same number, and the layer.

        >>> sizes = {"dim": 8, "words": 64, "characters": 0}
        >>> old, new = (BagEncoder(None, bigrams=bigrams, seed=bigrams, **sizes) for bigrams in (64, 0))
        >>> new.take_over(old), bool((new.table == old.table[:64]).all())
        (True, True)
        """
        if not isinstance(other, BagEncoder) or self._alike() != other._alike():
            return False
        if self.tokenizer is not None and self.tokenizer.to_str() != other.tokenizer.to_str():  # type: ignore[union-attr]
            return False
        here, there = self.features, other.features
        for kind, size in here.sizes.items():
            if size == there.sizes[kind]:
                start, begin = here.starts[kind], there.starts[kind]
                self.table[start : start + size] = other.table[begin : begin + size]
                self.weights[start : start + size] = other.weights[begin : begin + size]
        if self.layer is not None and other.layer is not None:
            self.layer.copy_(other.layer)
        return True

    def _alike(self) -> tuple[object, ...]:
        """Return what two bags must share for a row of one to mean something in the other."""
        return self.dim, self.ngrams, self.split, self.residual, self.activation, self.tokenizer is None

    def _thinned(self, tokens: Tokens) -> Tokens:
        """Return the texts without a random share of their features; drawn on the CPU, the same on every device."""
        keep = (torch.rand(len(tokens.ids)) >= self.thin).numpy()
        return Tokens(tokens.ids[keep], np.concatenate([[0], np.cumsum(keep)])[tokens.offsets])

    @torch.no_grad()
    def _start(self, vectors: Tensor | None) -> None:
        """Fill the table: pretrained vectors of mean length 1, random ones of about length 1."""
        generator = torch.Generator().manual_seed(self.seed)
        self.table.normal_(std=self.dim**-0.5, generator=generator)
        self.weights.copy_(self._shares())
        if self.layer is not None:
            self.layer.normal_(std=_NEAR_ZERO * self.dim**-0.5, generator=generator)
        if vectors is not None:
            start_rows(self.table, vectors, self.features.sizes["subwords"])

    def _shares(self) -> Tensor:
        sizes = self.features.sizes
        return torch.cat([torch.full((size,), _SHARES[kind]) for kind, size in sizes.items()]).to(self.weights)

    def _check(self) -> None:
        for name in ("words", "bigrams", "characters"):
            size = getattr(self, name)
            if size < 0 or size & (size - 1):
                near = 1 << max(0, size - 1).bit_length()
                raise SettingError(
                    f"{name} is {size}", remedy=f"give a power of two such as {near}, or 0 to leave them out"
                )
        if not 0 <= self.thin < 1:
            raise SettingError(f"thin is {self.thin}", remedy="give a share from 0 to below 1")
        if self.activation not in ("none", "relu"):
            raise SettingError(f"activation is {self.activation!r}", remedy="give none or relu")
        if self.dim < 1:
            raise SettingError(f"dim is {self.dim}", remedy="give at least 1")
        if self.characters and (not self.ngrams or min(self.ngrams) < 1):
            raise SettingError(f"ngrams is {self.ngrams}", remedy="give lengths such as [3, 4, 5], or characters: 0")
        if self.max_length is not None and self.max_length < 1:
            raise SettingError(f"max_length is {self.max_length}", remedy="give at least 1, or leave it out")


def weighted_bag(table: Tensor, weights: Tensor, tokens: Tokens) -> tuple[Tensor, Tensor]:
    r"""Return s [n, d] and q [n] of the texts.

    .. math:: s_i = \sum_{t \in \text{text}_i} w_t V_t, \qquad q_i = \sum_{t \in \text{text}_i} w_t^2

    for the table V [R, d] and weights w [R]. With G_t the sum of the gradients of s over
    the occurrences of row t, the gradient of V_t is w_t G_t and that of w_t is
    V_t . G_t + 2 w_t sum(gradients of q): one transposed bag serves both. Gradients are
    sparse, with each distinct row once, in ascending order, and the same bit for bit in
    every run with the same number of threads. (``torch`` forgets that such a gradient is
    coalesced when it becomes ``.grad``; an optimiser that sees ascending rows need not sort.)

    >>> import numpy as np, torch
    >>> from megalabel.types import Tokens
    >>> table, weights = torch.eye(3).requires_grad_(), torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    >>> sums, squares = weighted_bag(table, weights, Tokens(np.array([0, 2, 2], np.uint8), np.array([0, 3, 3])))
    >>> sums.tolist(), squares.tolist()
    ([[1.0, 0.0, 6.0], [0.0, 0.0, 0.0]], [19.0, 0.0])
    >>> sums.sum().backward()
    >>> table.grad._indices().tolist()
    [[0, 2]]
    """
    sums, squares = _WeightedBag.apply(table, weights, tokens)  # type: ignore[no-untyped-call]
    return sums, squares


class _WeightedBag(Function):
    @staticmethod
    def forward(ctx: Any, table: Tensor, weights: Tensor, tokens: Tokens) -> tuple[Tensor, Tensor]:
        ctx.tokens = tokens
        ctx.save_for_backward(table, weights)
        ids = torch.from_numpy(tokens.ids.astype(np.int64)).to(table.device)
        offsets = torch.from_numpy(np.array(tokens.offsets)).to(table.device)  # mapped ones cannot be written
        chosen = weights.index_select(0, ids)
        sums = embedding_bag(ids, table, offsets, mode="sum", include_last_offset=True, per_sample_weights=chosen)
        return sums, _segment_sum(chosen.square(), offsets)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, sums: Tensor, squares: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        table, weights = ctx.saved_tensors
        rows, texts, offsets = (torch.from_numpy(part).to(table.device) for part in _transposed(ctx.tokens, table))
        gradient = embedding_bag(texts, sums.contiguous(), offsets, mode="sum", include_last_offset=True)  # G, [U, d]
        chosen = weights.index_select(0, rows)
        of_weights = 2 * chosen * _segment_sum(squares.index_select(0, texts), offsets)
        for start in range(0, len(rows), _BLOCK):
            block = slice(start, start + _BLOCK)
            of_weights[block] += torch.linalg.vecdot(gradient[block], table.index_select(0, rows[block]))
        gradient *= chosen.unsqueeze(1)
        return _sparse(rows, gradient, table), _sparse(rows, of_weights, weights), None


def _transposed(tokens: Tokens, table: Tensor) -> tuple[Any, Any, Any]:
    """Return the distinct rows [U], and the texts each of them occurs in, ragged (texts, offsets)."""
    present = np.zeros(len(table), dtype=bool)
    present[tokens.ids] = True
    rows = np.flatnonzero(present)
    position = np.empty(len(table), dtype=np.int64)
    position[rows] = np.arange(len(rows))
    ones = np.ones(len(tokens.ids), dtype=np.int8)
    by_row = csr_matrix((ones, position[tokens.ids], tokens.offsets), shape=(len(tokens), len(rows))).tocsc()
    return rows, by_row.indices.astype(np.int64), by_row.indptr.astype(np.int64)


def _segment_sum(values: Tensor, offsets: Tensor) -> Tensor:
    """Add up the values [m] of each part; an empty part gives 0."""
    positions = torch.arange(len(values), device=values.device)
    return embedding_bag(positions, values.unsqueeze(1), offsets, mode="sum", include_last_offset=True).squeeze(1)


def _sparse(rows: Tensor, values: Tensor, like: Tensor) -> Tensor:
    return torch.sparse_coo_tensor(
        rows.unsqueeze(0), values, like.shape, is_coalesced=True, check_invariants=False, dtype=like.dtype
    )
