"""Queries and new labels: their features, computed once for all heads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.nn.functional import normalize

from megalabel.encoders._features import CutTexts
from megalabel.heads.head import NGRAMS
from megalabel.heads.live import Part, Rows
from megalabel.index import ExactIndex
from megalabel.network.vectors import query_side

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from megalabel.heads.dense import DenseHead
    from megalabel.network.fit import Fitted
    from megalabel.network.network import Network
    from megalabel.network.texts import TextTokens
    from megalabel.network.vectors import LabelSide

__all__ = ["LabelMaker", "QueryTexts"]

NEAREST = 10  # neighbours of a new label
TEMPERATURE = 0.05  # of their weights, if there is no text head


@dataclass
class QueryTexts:
    """Queries of a model; see :class:`megalabel.heads.head.Queries`."""

    texts: Sequence[str]
    network: Network
    fitted: Fitted
    seen: bool = False
    _features: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.texts = CutTexts(self.texts)  # into words, once for all features

    @cached_property
    def vectors(self) -> dict[str, Tensor]:
        """The query vectors of every dense head."""
        return query_side(self.network, self.network.tokenise(self.texts))

    def features(self, name: str) -> Any:
        """Return the n-grams of the texts (csr), or their query vectors by a dense head (an array)."""
        if name not in self._features:
            if name == NGRAMS:
                assert self.fitted.ngrams is not None
                self._features[name] = self.fitted.ngrams.encode(self.texts)
            else:
                self._features[name] = self.vectors[name].cpu().numpy()
        return self._features[name]


class LabelMaker:
    """Computes what each head stores for labels that it was not trained on, from their texts.

    Every kind of head has its own rule (``new_rows``). This class computes what several rules share: the nearest
    labels by text, and the rare labels, those with the fewest points, whose median norms and biases are used. Texts
    are compared by the first head whose label vectors are encoded texts, or by encoder vectors if there is none.

    Args:
        network: the trained network.
        fitted: the fitted heads, with the number of points of each trained label.
        side: vectors of the trained labels, by head.
        texts: texts of the trained labels.
        trained: number of trained labels, if the labels after them were added later and saved with the others. New
            labels are computed from trained ones only, so that they are the same before and after a save.
    """

    def __init__(
        self,
        network: Network,
        fitted: Fitted,
        side: Mapping[str, LabelSide],
        texts: Sequence[str],
        trained: int | None = None,
    ) -> None:
        self.network, self.fitted, self.side, self.texts = network, fitted, side, texts[:trained]
        self.counts, self.trained = fitted.counts[:trained], trained

    @torch.no_grad()
    def rows(self, ids: NDArray[np.int64], texts: Sequence[str], *, added: bool) -> Rows:
        """Return the rows of labels that were added (they only have a text), or renamed."""
        new = _NewTexts(ids, texts, added, self.rare, self)
        parts: dict[str, dict[str, Part]] = {}
        for name in self.network.heads:
            parts[name] = self._dense_rows(name, new)
        for name, head in self.fitted.heads.items():
            parts[name] = head.new_rows(new)
        return Rows(ids, np.full(len(ids), added, dtype=np.bool_), parts)

    def _dense_rows(self, name: str, new: _NewTexts) -> dict[str, Part]:
        space, side = self.network.space(name), self.side[name]
        if space.members is None:
            parts = self.network.head(name).new_rows(new)
        else:  # an added label joins the group of the nearest label
            nearest = new.nearest()[0][:, 0].cpu() if new.added else torch.from_numpy(new.ids)
            parts = {"vectors": side.vectors[nearest], "group": space.group_of[nearest.numpy()]}
            parts |= {} if side.bias is None else {"bias": side.bias[nearest]}
        searched = {"vectors", "bias"}
        return {
            part: value.to(side.vectors.device) if part in searched and isinstance(value, torch.Tensor) else value
            for part, value in parts.items()
        }

    @cached_property
    def rare(self) -> NDArray[np.int64]:
        """Ids of the labels with the fewest train points, at least one point if any label has one."""
        counts = self.counts
        return np.flatnonzero(counts == counts[counts > 0].min()) if counts.any() else np.arange(len(counts))

    def nearest(self, new: _NewTexts) -> tuple[Tensor, Tensor]:
        """Return the labels [n, m] with train points that are nearest to new texts, and weights that sum to 1."""
        index, temperature = self._text_index
        name = self.network.text_head()
        vectors = (
            new.plain() if name is None else self.network.head(name).project_labels(new.encoded(name), search=True)
        )
        near = index.search(normalize(vectors, dim=1), min(NEAREST, len(index)))
        weights = (torch.from_numpy(near.scores) / temperature).softmax(dim=1)
        return torch.from_numpy(np.maximum(near.ids, 0)), weights

    @cached_property
    def _text_index(self) -> tuple[ExactIndex, float]:
        """The texts of the labels that have train points, as unit vectors, and a temperature."""
        name = self.network.text_head()
        vectors = (
            self._plain(self.network.tokenise(self.texts)) if name is None else self.side[name].vectors[: self.trained]
        )
        if name is None or not self.network.head(name).search_normalise:
            vectors = normalize(vectors, dim=1)
        unseen = np.flatnonzero(self.counts == 0)
        index = ExactIndex(vectors)
        temperature = TEMPERATURE if name is None else float(self.network.head(name).temperature())
        return index.remove(unseen) if len(unseen) < len(index) else index, temperature

    def _plain(self, texts: TextTokens) -> Tensor:
        """Return label texts encoded by the first encoder, without a head."""
        name = self.network.default
        vectors = self.network.encode(name, texts[name], self.network.length(name, labels=True))
        return vectors if vectors.dim() == 2 else vectors[:, -1]


@dataclass
class _NewTexts:
    """See :class:`megalabel.heads.head.NewTexts`."""

    ids: NDArray[np.int64]
    texts: Sequence[str]
    added: bool
    rare: NDArray[np.int64]
    maker: LabelMaker
    _encoded: dict[str, Tensor] = field(default_factory=dict)

    @cached_property
    def tokens(self) -> TextTokens:
        return self.maker.network.tokenise(self.texts)

    @cached_property
    def as_queries(self) -> QueryTexts:
        return QueryTexts(self.texts, self.maker.network, self.maker.fitted)

    def encoded(self, head: str | DenseHead) -> Tensor:
        network = self.maker.network
        name = head if isinstance(head, str) else next(name for name in network.heads if network.heads[name] is head)
        encoder = network.label_encoder(name)
        if encoder not in self._encoded:
            length = network.length(encoder, labels=True)
            self._encoded[encoder] = network.encode(encoder, self.tokens[encoder], length)
        return network.tapped(self._encoded[encoder], encoder, name)

    def plain(self) -> Tensor:
        return self.maker._plain(self.tokens)

    def features(self, name: str) -> Any:
        return self.as_queries.features(name)

    @cached_property
    def _nearest(self) -> tuple[Tensor, Tensor]:
        return self.maker.nearest(self)

    def nearest(self) -> tuple[Tensor, Tensor]:
        return self._nearest
