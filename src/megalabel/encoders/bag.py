"""A bag of features as text encoder: table rows, added up. The fast one on a CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import linear, relu

from megalabel.encoders._features import Features
from megalabel.encoders._source import has_minilm
from megalabel.encoders._token_table import TableEncoder, idf, open_source, start_rows
from megalabel.encoders._weighted_bag import weighted_bag
from megalabel.errors import SettingError
from megalabel.types import Tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

    from megalabel.encoders._base import Layers


__all__ = ["BagEncoder"]

_TINY = 1e-12
_NEAR_ZERO = 0.02  # size of the residual layer at the start
_SHARES = {"subwords": 1.0, "words": 1.0, "bigrams": 0.5, "characters": 0.3}  # start of a weight before idf


class BagEncoder(TableEncoder):
    r"""Encode a text as the weighted sum of the vectors of its features, then one residual layer.

    .. math::
        x = \frac{\sum_t w_t V_t}{\sqrt{\sum_t w_t^2}}, \qquad
        \text{vector} = x + \text{dropout}(\text{relu}(W x))

    over the subwords of a tokenizer, whole words, pairs of neighbouring words and character
    n-grams of words (Joulin et al. 2017, "Bag of Tricks for Efficient Text Classification",
    section 2; Bojanowski et al. 2017, "Enriching Word Vectors with Subword Information",
    section 3.2). All but subwords are hashed. The table V [rows, dim] and the weights w [rows]
    get sparse gradients: an optimiser with row-wise updates touches the rows of the step only.

    Subwords start from the token vectors of a pretrained model, hashed rows from small random
    vectors, so that texts with words in common are near each other from the start; call
    ``fit`` with the texts to come to start the weights from their inverse document frequency.

    Args:
        source: where tokenizer and token vectors come from: ``"minilm"``, the folder of a model
            (tokenizer.json, model.safetensors), the folder of a saved bag with the same
            settings, which gives all its weights, or None for hashed features only.
            ``"auto"`` takes MiniLM if its package is installed.
        dim: size of a vector. Token vectors of another size are cut to their main directions.
        words, bigrams, characters: table rows of whole words, word pairs and n-grams; a power
            of two, 0 leaves them out. A row takes 4 dim bytes. Features that meet in a row share
            its vector; give more rows where there are millions of texts.
        ngrams: lengths of the character n-grams.
        residual: add the residual layer.
        dropout: share of the residual layer's output dropped in training.
        thin: share of the features of a text left out in training, drawn anew each time (Iyyer et
            al. 2015, "Deep Unordered Composition Rivals Syntactic Methods for Text
            Classification", section 3.2): no label can rest on one feature alone.
        max_length: most features of a text, from its start; None takes all.
        seed: of the random start.

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
        residual: bool = True,
        dropout: float = 0.0,
        thin: float = 0.0,
        max_length: int | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.source = ("minilm" if has_minilm() else None) if source == "auto" else source
        self.dim, self.words, self.bigrams, self.characters = dim, words, bigrams, characters
        self.ngrams = list(ngrams)
        self.residual, self.dropout, self.thin = residual, dropout, thin
        self.max_length, self.seed = max_length, seed
        self._check()
        folder, saved, self.tokenizer = open_source(self.source)
        self.features = Features(
            self.tokenizer, words=words, bigrams=bigrams, characters=characters, ngrams=self.ngrams
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
        most = self.max_length if max_length is None else max_length
        if most is not None:
            tokens = tokens.take(np.arange(len(tokens)), most)
        if self.training and self.thin:
            tokens = self._thinned(tokens)
        sums, squares = weighted_bag(self.table, self.weights, tokens)
        vectors = sums * squares.clamp_min(_TINY).rsqrt().unsqueeze(1)
        if self.layer is not None:
            vectors = vectors + self.drop(relu(linear(vectors, self.layer)))
        return vectors

    @torch.no_grad()
    def fit(self, tokens: Tokens, *more: Tokens) -> Self:
        r"""Start the weights from the inverse document frequency of each feature in the n texts.

        .. math:: w_t = c_{\text{kind}} \frac{1 + \log((n + 1) / (n_t + 1))}{1 + \log(n + 1)}

        with n_t the texts that have feature t and c the weight its kind starts from. Give the
        texts of train and labels together: ``encoder.fit(queries, labels)``.
        """
        found = torch.from_numpy(idf(tokens, self.features.rows, *more))
        self.weights.copy_(self._shares() * found.to(self.weights))
        return self

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
        if self.dim < 1:
            raise SettingError(f"dim is {self.dim}", remedy="give at least 1")
        if self.characters and (not self.ngrams or min(self.ngrams) < 1):
            raise SettingError(f"ngrams is {self.ngrams}", remedy="give lengths such as [3, 4, 5], or characters: 0")
        if self.max_length is not None and self.max_length < 1:
            raise SettingError(f"max_length is {self.max_length}", remedy="give at least 1, or leave it out")
