"""Head ``graph``: the label's text, the texts of its neighbours in a label graph and a free vector, by attention."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
import torch
from pydantic import PositiveInt, model_validator
from torch import nn
from torch.nn.functional import dropout, embedding_bag, relu

from megalabel.graphs import normalise, random_walk
from megalabel.heads.dense import DenseHead, LabelTextSettings
from megalabel.heads.dense.projections import SpectralLinear, make_projection
from megalabel.heads.dense.tables import BLOCK, embed_rows, new_table
from megalabel.heads.head import register
from megalabel.settings import Dropout

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray
    from scipy.sparse import csr_matrix
    from torch import Tensor

    from megalabel.heads.cost import HeadCost, HeadWorkload
    from megalabel.heads.dense import Points
    from megalabel.heads.head import InitData, NewTexts, TrainTexts
    from megalabel.heads.live import Part

__all__ = ["GraphHead", "GraphSettings", "graph_rows"]

_PARTS = 3  # text, graph, free


@register
class GraphSettings(LabelTextSettings):
    """Label vectors are encoded texts, those of neighbours and learnt rows, weighted by attention."""

    has_table: ClassVar[bool] = True
    reads_neighbours: ClassVar[bool] = True
    noise_keys: ClassVar[tuple[str, ...]] = (*LabelTextSettings.noise_keys, "row_dropout", "attention_dropout")

    kind: Literal["graph"] = "graph"
    neighbours: PositiveInt = 10  # of a label in the graph at most, itself among them
    row_dropout: Dropout = 0.0
    attention_dropout: Dropout = 0.0  # of what attention reads

    @model_validator(mode="after")
    def _check_noise(self) -> Self:
        untrained = "loss is null, the head is not trained"
        self.require(self.loss is not None, "row_dropout attention_dropout", untrained)
        return self

    @property
    def has_matrix(self) -> bool:
        """Whether it learns a matrix: attention has two."""
        return True

    def cost(self, workload: HeadWorkload) -> HeadCost:
        """Return the cost of all dense heads, plus layers of texts and attention, stored means, texts of neighbours."""
        cost = super().cost(workload)
        own = cost.matrices - (cost.dim**2 if self.query_matrix else 0)
        attention = cost.dim**2 + cost.dim + _PARTS * _PARTS * cost.dim + _PARTS
        layers = (self.projection != "none") * (1 + 2 * (self.dropout > 0))
        return replace(
            cost,
            matrices=cost.matrices + 2 * own + attention,
            kept=cost.dim,
            saved=1 + 2 * layers + 3 * _PARTS + _PARTS * (self.attention_dropout > 0) + 2 * (self.row_dropout > 0),
            label_neighbours=self.neighbours - 1,
            init_from_texts=True,
            init_labels=1,
        )

    def build(self, **arguments: Any) -> GraphHead:
        """Return the head; see :meth:`DenseSettings.build`."""
        return GraphHead(self, **arguments)


class GraphHead(DenseHead):
    r"""The classifier of ECLARE ("Extreme Classification with Label Graph Correlations", Mittal et al., WWW 2021).

    .. math::
        w_l &= \sum_{m=1}^3 a_{lm} c_{lm}, \qquad c_l = (R_0(t_l),\ R_1((G t)_l),\ u_l) \\
        a_l &= \text{softmax}(\bar W_2\, [\bar W_1\, \text{relu}(\text{drop}(c_{lm})) + b_1]_m + b_2)

    (its section 3). t_l is the encoded text of a label, u_l a free vector that starts at (G t)_l, and R_0 and R_1 are
    layers of the kind of ``projection``, each with weights of its own. G is the graph of
    :func:`megalabel.graphs.random_walk` over labels and points, with at most ``neighbours`` entries per label, scaled
    to D_r^-1/2 G D_c^-1/2. Attention has spectrally normalised layers W_1 [d, d], the same for all three parts, and W_2
    [3, 3 d], so that every label has its own weights a_l.

    (G t)_l is computed from the current texts of all neighbours in a step. For search it is stored per label and
    updated after each epoch, so that the vector of a label does not depend on later changes of others. A new label
    has only itself as a neighbour, a renamed one keeps its own.

    >>> head = GraphSettings(projection="relu_residual", normalise=False, loss="bce").build(size=5, encoder_dim=4)
    >>> pool = torch.tensor([0, 3])
    >>> head.labels(pool, torch.randn(len(head.support(pool)), 4))[0].shape
    torch.Size([2, 4])
    """

    settings: GraphSettings
    table: nn.Parameter
    means: Tensor  # (G t) [labels of the shard, encoder_dim]

    def __init__(
        self, settings: GraphSettings, *, size: int, encoder_dim: int, shard: range | None = None, **more: Any
    ) -> None:
        super().__init__(settings, size=size, encoder_dim=encoder_dim, shard=shard, **more)
        self.table = new_table(size, self.dim, shard)
        kind, rate = settings.projection, settings.dropout
        self.text_projection = make_projection(kind, encoder_dim, self.dim, rate, labels=True)
        self.graph_projection = make_projection(kind, encoder_dim, self.dim, rate, labels=True)
        self.attention = SpectralLinear(self.dim, self.dim)
        self.attention_weights = SpectralLinear(_PARTS * self.dim, _PARTS)
        self.register_buffer("means", torch.zeros(len(self.shard), encoder_dim))
        own = torch.arange(len(self.shard)).unsqueeze(1)  # before attach: a graph without edges
        self.register_buffer("_neighbours", own, persistent=False)
        self.register_buffer("_weights", torch.ones(len(self.shard), 1), persistent=False)

    def attach(self, targets: csr_matrix, seed: int) -> None:
        """Walk over labels and points."""
        graph = normalise(random_walk(targets, top=self.settings.neighbours, seed=seed))
        ids, weights = graph_rows(graph)
        self._neighbours = torch.from_numpy(ids).to(self.means.device)
        self._weights = torch.from_numpy(weights).to(self.means)

    def row_parameters(self) -> dict[str, str]:
        """Return the free vectors, the bias, if there is one, and the means over neighbours."""
        return {**super().row_parameters(), "means": "means"}

    def support(self, pool: Tensor | None) -> Tensor | None:
        """Return the labels of a pool and their neighbours; None means every label."""
        if pool is None:
            return None
        both: Tensor = torch.unique(torch.cat([pool, self._neighbours.index_select(0, pool).flatten()]))
        return both

    def rows(
        self, pool: Tensor | None, encoded: Tensor | None, *, points: Points | None = None, search: bool = False
    ) -> Tensor:
        """Return label vectors; in search from the stored means, else from the current texts of ``support(pool)``."""
        if encoded is None:
            raise TypeError("a graph head needs encoded label texts")
        texts, support = encoded, self.support(pool)
        if search:
            means = self.means if pool is None else self.means.index_select(0, pool)
        else:
            means = self._mean(encoded, pool, support)
        if pool is not None and support is not None:
            texts = encoded.index_select(0, torch.searchsorted(support, pool))
        free = embed_rows(self.table, pool, self.settings.row_dropout, training=self.training)
        return self._attended(texts, means, free)

    def _mean(self, encoded: Tensor, pool: Tensor | None, support: Tensor | None) -> Tensor:
        """Return (G t) [P, encoder_dim] of the labels of a pool, given the texts of ``support``."""
        near = self._neighbours if pool is None else self._neighbours.index_select(0, pool)
        weights = self._weights if pool is None else self._weights.index_select(0, pool)
        places = near if support is None else torch.searchsorted(support, near)
        means: Tensor = embedding_bag(places, encoded, mode="sum", per_sample_weights=weights.to(encoded.dtype))
        return means

    def _attended(self, texts: Tensor, means: Tensor, free: Tensor) -> Tensor:
        parts = torch.stack([self.text_projection(texts), self.graph_projection(means), free], dim=1)  # [P, 3, d]
        read = dropout(parts, self.settings.attention_dropout, self.training)
        hidden: Tensor = self.attention(relu(read))
        shares: Tensor = self.attention_weights(hidden.flatten(1)).softmax(dim=1)
        return torch.einsum("pm,pmd->pd", shares, parts)

    def init_table(self, data: InitData) -> Tensor | None:
        """Store the means over neighbours, and start the free vectors there."""
        self._update(lambda start, stop: data.encoded_labels(start, stop))
        for start in range(0, len(self.table), BLOCK):
            rows = slice(start, start + BLOCK)
            means = self.means[rows]
            self.table[rows] = means if means.shape[1] == self.dim else self.graph_projection(means)
        return None

    @torch.no_grad()
    def after_epoch(self, texts: TrainTexts) -> None:
        """Compute the stored means with the current weights."""
        self._update(lambda start, stop: texts.labels(torch.arange(start, stop)))

    def _update(self, encode: Callable[[int, int], Tensor]) -> None:
        """Set the stored means, given what encodes the texts of a range of labels."""
        encoded = torch.empty_like(self.means)
        for start in range(0, self.size, BLOCK):
            stop = min(start + BLOCK, self.size)
            encoded[start:stop] = encode(start, stop).to(encoded)
        self.means.copy_(self._mean(encoded, None, None))

    def new_vectors(self, new: NewTexts) -> tuple[Tensor, dict[str, Part]]:
        """Encode the new texts, which are their own neighbours; a renamed label keeps its means and free vector."""
        texts = new.encoded(self)
        if new.added:
            means = texts
            free = means if means.shape[1] == self.dim else self.graph_projection(means)
        else:
            ids = torch.from_numpy(new.ids).to(self.means.device)
            means, free = self.means[ids], self.table[ids]
        return self._attended(texts, means, free), {"free": free, "means": means}


def graph_rows(graph: csr_matrix) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return the neighbours [L, k] of each label and their weights, k the largest number of them.

    Shorter rows are filled with the label itself, of weight 0.

    >>> from scipy.sparse import csr_matrix
    >>> ids, weights = graph_rows(csr_matrix([[0.5, 0.25, 0], [0, 1, 0], [0, 0, 0]]))
    >>> ids.tolist(), weights.tolist()
    ([[0, 1], [1, 1], [2, 2]], [[0.5, 0.25], [1.0, 0.0], [0.0, 0.0]])
    """
    counts = np.diff(graph.indptr)
    width = max(1, int(counts.max(initial=0)))
    rows = np.repeat(np.arange(len(counts)), counts)
    place = np.arange(graph.nnz) - np.repeat(graph.indptr[:-1], counts)
    ids = np.repeat(np.arange(len(counts), dtype=np.int64)[:, None], width, axis=1)
    weights = np.zeros((len(counts), width), dtype=np.float32)
    ids[rows, place], weights[rows, place] = graph.indices, graph.data
    return ids, weights
