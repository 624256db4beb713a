"""What each head makes of a label it was not trained on, from the label's text alone."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from scipy import sparse
from torch import Tensor
from torch.nn.functional import normalize

from megalabel.heads.linear import Linear
from megalabel.heads.memory import Memory
from megalabel.heads.overlap import Overlap
from megalabel.heads.towers import TextTower
from megalabel.index import ExactIndex
from megalabel.model.rows import Part, Rows
from megalabel.training.fitted import NGRAMS
from megalabel.training.vectors import query_side

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from megalabel.training.fitted import Fitted
    from megalabel.training.network import Network
    from megalabel.training.vectors import LabelSide
    from megalabel.types import Tokens

__all__ = ["NewLabels"]

Kind = TypeVar("Kind", Memory, Linear, Overlap)

NEAREST = 10  # labels whose free vectors a new one is made of
TEMPERATURE = 0.05  # of their weights, where no text tower has one


class NewLabels:
    """Makes the rows of new and renamed labels, by one rule for each kind of tower and head.

    ============  ======================================================================
    text          the encoded text, as for any label
    text + free   the encoded text; the free part is zero
    free          the mean of the free vectors of the nearest labels by text, weighted by
                  softmax(cosine / temperature) and scaled to the norm of rare labels
    bias          that of rare labels
    linear        the own text is the one positive: its n-grams, scaled to the norm of the
                  weights of rare labels, with their bias
    memory        the own text is a training row that carries the label
    overlap       the words of the own text
    ============  ======================================================================

    Rare labels are those seen once, or the least often; of their norms and biases the median is
    taken. Text is compared by the first text tower, by plain encoder vectors where there is none.
    A renamed label keeps what was learnt from its points: free vectors, bias, linear weights.

    Args:
        network: encoder and heads as trained.
        fitted: heads that train no encoder, and how often each label of the training was seen.
        side: label vectors of the training by head.
        texts: label texts of the training.
    """

    def __init__(self, network: Network, fitted: Fitted, side: Mapping[str, LabelSide], texts: Sequence[str]) -> None:
        self.network, self.fitted, self.side, self.texts = network, fitted, side, texts

    @torch.no_grad()
    def added(self, ids: NDArray[np.int64], texts: Sequence[str]) -> Rows:
        """Return the rows of labels that only have a text."""
        tokens = self._tokenise(texts)
        encoded = self.network.encode(tokens, self.network.recipe.encoder.label_length)
        parts: dict[str, Part] = {}
        for name in self.network.heads:
            head = self.network.head(name)
            if isinstance(head.tower, TextTower):
                vectors: Tensor = head.projection(encoded)
            elif head.needs_text:
                vectors = head.projection(encoded)
                parts[f"free/{name}"] = torch.zeros_like(vectors)
            else:
                vectors = parts[f"free/{name}"] = self._mean_of_nearest(name, encoded)
            bias = None if head.bias is None else self._rare_biases[name].expand(len(texts)).clone()
            parts |= self._searched(name, vectors, bias)
        ngrams: Any = self._ngrams(texts)
        parts |= self._fitted(texts, tokens, ngrams)
        for name, linear in self._of(Linear).items():
            norm, base = self._rare_linear[name]
            parts[f"weights/{name}"] = sparse.csr_matrix(ngrams * norm)
            parts[f"base/{name}"] = np.full(len(texts), base, dtype=linear.bias_.dtype)
        return Rows(ids, np.ones(len(ids), dtype=np.bool_), parts)

    @torch.no_grad()
    def renamed(self, ids: NDArray[np.int64], texts: Sequence[str]) -> Rows:
        """Return the rows of labels of the training that have a new text."""
        tokens = self._tokenise(texts)
        encoded = self.network.encode(tokens, self.network.recipe.encoder.label_length)
        parts: dict[str, Part] = {}
        for name in self.network.heads:
            head = self.network.head(name)
            table = head.table
            free = None if table is None else table[torch.from_numpy(ids).to(table.device)]
            if free is not None:
                parts[f"free/{name}"] = free
            vectors = head.projection(encoded) if head.needs_text else torch.zeros((), device=encoded.device)
            vectors = vectors if free is None else vectors + free
            bias = None if head.bias is None else head.bias[torch.from_numpy(ids).to(head.bias.device)]
            parts |= self._searched(name, vectors, bias)
        parts |= self._fitted(texts, tokens, self._ngrams(texts))
        for name, linear in self._of(Linear).items():
            assert linear.weights_ is not None
            parts[f"weights/{name}"] = sparse.csr_matrix(linear.weights_[ids])
            parts[f"base/{name}"] = linear.bias_[ids]
        return Rows(ids, np.zeros(len(ids), dtype=np.bool_), parts)

    def _searched(self, name: str, vectors: Tensor, bias: Tensor | None) -> dict[str, Part]:
        """Return what a search multiplies with."""
        place = self.side[name].vectors.device
        head = self.network.head(name)
        found: dict[str, Part] = {
            f"vectors/{name}": (normalize(vectors, dim=1) if head.search_normalise else vectors).to(place)
        }
        return found if bias is None else {**found, f"bias/{name}": bias.to(place)}

    def _fitted(self, texts: Sequence[str], tokens: Tokens, ngrams: Any) -> dict[str, Part]:
        """Return what memories and overlaps keep of the texts."""
        found: dict[str, Part] = {}
        for name, overlap in self._of(Overlap).items():
            found[f"words/{name}"] = overlap.label_rows(texts)
        spaces = {self.fitted.of[name] for name in self._of(Memory)}
        queries = query_side(self.network, tokens) if spaces - {NGRAMS} else {}
        for name in self._of(Memory):
            space = self.fitted.of[name]
            found[f"row/{name}"] = ngrams if space == NGRAMS else normalize(queries[space], dim=1).cpu().numpy()
        return found

    def _mean_of_nearest(self, name: str, encoded: Tensor) -> Tensor:
        """Return free vectors [n, d] made of those of the nearest labels."""
        table = self.network.head(name).table
        assert table is not None
        index, temperature = self._space
        text = self._text_head
        vectors = encoded if text is None else self.network.head(text).projection(encoded)
        near = index.search(normalize(vectors, dim=1), min(NEAREST, len(index)))
        ids = torch.from_numpy(np.maximum(near.ids, 0)).to(table.device)
        weights = (torch.from_numpy(near.scores) / temperature).softmax(dim=1).to(table.device)
        mean = torch.bmm(weights.unsqueeze(1), table[ids]).squeeze(1)
        found: Tensor = normalize(mean, dim=1) * self._rare_norms[name]
        return found

    @cached_property
    def _text_head(self) -> str | None:
        return next((name for name in self.network.heads if isinstance(self.network.head(name).tower, TextTower)), None)

    @cached_property
    def _space(self) -> tuple[ExactIndex, float]:
        """Return the texts of the labels that have training points, as unit vectors, and a temperature."""
        name = self._text_head
        if name is None:
            vectors = self.network.encode(self._tokenise(self.texts), self.network.recipe.encoder.label_length)
        else:
            vectors = self.side[name].vectors
        if name is None or not self.network.head(name).search_normalise:
            vectors = normalize(vectors, dim=1)
        unseen = np.flatnonzero(self.fitted.counts == 0)
        index = ExactIndex(vectors)
        temperature = TEMPERATURE if name is None else float(self.network.head(name).temperature())
        return index.remove(unseen) if len(unseen) < len(index) else index, temperature

    @cached_property
    def _rare(self) -> NDArray[np.int64]:
        """Ids of the labels with the fewest training points, at least one where any has."""
        counts = self.fitted.counts
        return np.flatnonzero(counts == counts[counts > 0].min()) if counts.any() else np.arange(len(counts))

    @cached_property
    def _rare_norms(self) -> dict[str, Tensor]:
        """The norm of the free vectors of rare labels, by head."""
        tables = {name: self.network.head(name).table for name in self.network.heads}
        return {
            name: torch.linalg.vector_norm(table[self._rare], dim=1).median()
            for name, table in tables.items()
            if table is not None
        }

    @cached_property
    def _rare_biases(self) -> dict[str, Tensor]:
        """The bias of rare labels, by head."""
        biases = {name: self.network.head(name).bias for name in self.network.heads}
        return {name: bias[self._rare].median() for name, bias in biases.items() if bias is not None}

    @cached_property
    def _rare_linear(self) -> dict[str, tuple[float, float]]:
        """The norm of the weights and the bias of rare labels, by linear head."""
        found = {}
        for name, linear in self._of(Linear).items():
            assert linear.weights_ is not None
            norms = np.sqrt(np.asarray(linear.weights_[self._rare].power(2).sum(axis=1)))
            found[name] = float(np.median(norms)), float(np.median(linear.bias_[self._rare]))
        return found

    def _of(self, kind: type[Kind]) -> dict[str, Kind]:
        return {name: head for name, head in self.fitted.heads.items() if isinstance(head, kind)}

    def _ngrams(self, texts: Sequence[str]) -> sparse.csr_matrix | None:
        return None if self.fitted.ngrams is None else self.fitted.ngrams.encode(texts)

    def _tokenise(self, texts: Sequence[str]) -> Tokens:
        tokens: Tokens = self.network.encoder.tokenise(texts)  # type: ignore[operator]
        return tokens
