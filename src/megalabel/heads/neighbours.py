"""Head ``neighbours``: the label's text and those of its neighbours in the graph of points and labels."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import PositiveInt
from torch import nn
from torch.nn.functional import normalize

from megalabel.heads.dense import DenseHead, DenseSettings, Points
from megalabel.heads.dense.tables import BLOCK
from megalabel.heads.head import register

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from scipy.sparse import csr_matrix
    from torch import Tensor

    from megalabel.heads.cost import HeadCost, HeadWorkload
    from megalabel.heads.head import NewTexts, TrainTexts
    from megalabel.heads.live import Part

__all__ = ["NeighboursHead", "NeighboursSettings", "sample_neighbours"]


@register
class NeighboursSettings(DenseSettings):
    """Label vectors are encoded texts, mixed with those of train points and of the labels of these."""

    reads_text: ClassVar[bool] = True
    reads_neighbours: ClassVar[bool] = True
    reads_points: ClassVar[bool] = True

    kind: Literal["neighbours"] = "neighbours"
    points: PositiveInt = 3  # train points of a label
    point_labels: PositiveInt = 3  # labels of each of these points

    @property
    def has_matrix(self) -> bool:
        """Whether it learns a matrix: it always has two."""
        return True

    def cost(self, workload: HeadWorkload) -> HeadCost:
        """Return the cost of all dense heads, plus two matrices, the stored means and the texts of a step."""
        cost = super().cost(workload)
        return replace(
            cost,
            matrices=cost.matrices + 4 * cost.dim**2,
            kept=cost.dim,
            saved=cost.saved + 2 + self.points * (2 + self.point_labels),
            points=self.points,
            point_labels=self.point_labels,
        )

    def build(self, **arguments: Any) -> NeighboursHead:
        """Return the head; see :meth:`DenseSettings.build`."""
        return NeighboursHead(self, **arguments)


class NeighboursHead(DenseHead):
    r"""Two layers of mean aggregation over the graph of train points and labels.

    .. math::
        w_l = W_2 \Bigl[ f(z_l);\ \frac{1}{|P_l|} \sum_{x \in P_l} h_x \Bigr], \qquad
        h_x = \mathrm{norm}\Bigl( W_1 \Bigl[ f(x);\ \frac{1}{|L_x|} \sum_{z \in L_x} f(z) \Bigr] \Bigr)

    with f the encoder's vectors scaled to length 1, P_l at most ``points`` train points of the label and L_x at most
    ``point_labels`` labels of a point, both drawn once. This is the mean aggregator of GraphSAGE (Hamilton et al.,
    NeurIPS 2017, algorithm 1, K = 2) on the graph of points and labels. Papers on extreme classification compare
    with GraphSAGE and do not say how they set it up, so the rest is our own definition: a query is its text alone,
    since a new text has no edges; W_1 and W_2 begin as the identity on the first half and zero on the
    second, so that training begins with the plain dual encoder; the points of a batch are no neighbours in its step,
    so that a label cannot be recognised by the query it is scored with.

    The second half of a label, the mean over its points, is stored per label and updated after each epoch
    (:meth:`after_epoch`), so that search needs no train points. A new label has no neighbours, a renamed one keeps
    its own.
    """

    settings: NeighboursSettings
    means: Tensor  # [labels of the shard, d], zero for a label without points

    def __init__(
        self, settings: NeighboursSettings, *, size: int, encoder_dim: int, shard: range | None = None, **more: Any
    ) -> None:
        super().__init__(settings, size=size, encoder_dim=encoder_dim, shard=shard, **more)
        start = torch.cat([torch.eye(self.dim), torch.zeros(self.dim, self.dim)], dim=1)
        self.point_matrix, self.label_matrix = nn.Parameter(start), nn.Parameter(start.clone())  # [d, 2 d]
        self.register_buffer("means", torch.zeros(len(self.shard), self.dim))
        self.register_buffer("_points", torch.zeros(0, dtype=torch.int64), persistent=False)
        self.register_buffer("_labels", torch.zeros(0, dtype=torch.int64), persistent=False)

    def attach(self, targets: csr_matrix, seed: int) -> None:
        """Draw the neighbours of all labels and of all points."""
        drawn = sample_neighbours(targets.T.tocsr(), self.settings.points, seed)
        back = sample_neighbours(targets, self.settings.point_labels, seed + 1)
        self._points, self._labels = (torch.from_numpy(part).to(self.means.device) for part in (drawn, back))

    def row_parameters(self) -> dict[str, str]:
        """Return the bias, if there is one, and the means over points."""
        return {**super().row_parameters(), "means": "means"}

    def points(self, pool: Tensor | None, batch: Tensor) -> Tensor:
        """Return the neighbours of the labels of a pool that are not in the batch."""
        near: Tensor = torch.unique(self._points if pool is None else self._points.index_select(0, pool))
        return near[(near >= 0) & ~torch.isin(near, batch)]

    def support(self, pool: Tensor | None) -> Tensor | None:
        """Return the pool and the labels of the neighbours of its labels; None means every label."""
        if pool is None or not len(self._points):
            return pool
        near = torch.unique(self._points.index_select(0, pool))
        further = self._labels.index_select(0, near[near >= 0]).flatten()
        both: Tensor = torch.unique(torch.cat([pool, further[further >= 0]]))
        return both

    def rows(
        self, pool: Tensor | None, encoded: Tensor | None, *, points: Points | None = None, search: bool = False
    ) -> Tensor:
        """Return label vectors, from the stored means if no points are given."""
        if encoded is None:
            raise TypeError("a neighbours head needs encoded label texts")
        texts = normalize(self.project(encoded, search=search), dim=1)
        if points is None:
            means = self.means if pool is None else self.means.index_select(0, pool)
            return self._mixed(texts, means)
        assert pool is not None
        support = self.support(pool)
        assert support is not None
        own = texts.index_select(0, torch.searchsorted(support, pool))
        return self._mixed(own, self._means(pool, points, support, texts))

    @torch.no_grad()
    def after_epoch(self, texts: TrainTexts) -> None:
        """Compute the stored means with the current weights."""
        for start in range(0, self.size, BLOCK):
            labels = torch.arange(start, min(start + BLOCK, self.size), device=self.means.device)
            ids, support = self.points(labels, labels[:0]), self.support(labels)
            assert support is not None
            points = Points(ids, texts.points(ids))
            units = normalize(self.project(texts.labels(support), search=True), dim=1)
            self.means.index_copy_(0, labels, self._means(labels, points, support, units))

    def new_vectors(self, new: NewTexts) -> tuple[Tensor, dict[str, Part]]:
        """Encode the new texts; there are no neighbours, or those of the renamed label."""
        texts = normalize(self.project(new.encoded(self), search=True), dim=1)
        means = torch.zeros_like(texts)
        if not new.added:
            means = self.means[torch.from_numpy(new.ids).to(self.means.device)]
        return self._mixed(texts, means), {"means": means}

    def _mixed(self, texts: Tensor, means: Tensor) -> Tensor:
        return torch.cat([texts, means], dim=1) @ self.label_matrix.T

    def _means(self, labels: Tensor, points: Points, support: Tensor, texts: Tensor) -> Tensor:
        """Return the mean [n, d] of the points of labels [n]; ``texts`` are unit vectors of the labels ``support``."""
        own = normalize(self.project(points.encoded), dim=1)
        further = _mean(texts, support, self._labels.index_select(0, points.ids))
        hidden = normalize(torch.cat([own, further], dim=1) @ self.point_matrix.T, dim=1)
        return _mean(hidden, points.ids, self._points.index_select(0, labels))


def _mean(rows: Tensor, ids: Tensor, wanted: Tensor) -> Tensor:
    """Return the mean [n, d] of the rows that are wanted [n, k] and there, by their ascending ids; 0 if none is."""
    if not len(ids):
        return rows.new_zeros(len(wanted), rows.shape[1])
    places = torch.searchsorted(ids, wanted.contiguous()).clamp_max(len(ids) - 1)
    there = (ids[places] == wanted) & (wanted >= 0)
    picked = rows.index_select(0, places.flatten()).view(*wanted.shape, rows.shape[1])
    sums = (picked * there.unsqueeze(2).to(rows.dtype)).sum(dim=1)
    return sums / there.sum(dim=1, keepdim=True).clamp_min(1).to(rows.dtype)


def sample_neighbours(graph: csr_matrix, count: int, seed: int) -> NDArray[np.int64]:
    """Return at most ``count`` neighbours of each row of a graph [n, m], drawn without replacement: [n, count].

    Rows are ascending and padded with -1. What is drawn for a row depends on the seed and on the graph.

    >>> from scipy.sparse import csr_matrix
    >>> sample_neighbours(csr_matrix([[1, 0, 1], [0, 0, 0], [1, 1, 1]]), 2, seed=0)[:2].tolist()
    [[0, 2], [-1, -1]]
    """
    keys = np.random.default_rng(seed).random(graph.nnz)
    sizes = np.diff(graph.indptr)
    rows = np.repeat(np.arange(graph.shape[0]), sizes)
    order = np.lexsort((keys, rows))  # the cells of each row in random order
    place = np.arange(graph.nnz) - np.repeat(graph.indptr[:-1], sizes)
    kept = place < count
    drawn = np.full((graph.shape[0], count), graph.shape[1], dtype=np.int64)
    drawn[rows[kept], place[kept]] = graph.indices[order][kept]
    drawn.sort(axis=1)
    drawn[drawn == graph.shape[1]] = -1
    return drawn
