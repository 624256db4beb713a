"""Prediction through coarser heads: groups of labels are searched coarse to fine, with a beam."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from megalabel.heads.dense.children import Children, best_items
from megalabel.network.vectors import LabelSide
from megalabel.types import TopK

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from scipy import sparse

    from megalabel.heads.dense import DenseHead, DenseSettings
    from megalabel.network.network import Network
    from megalabel.network.spaces import LabelSpace

__all__ = ["Cascade", "CascadeAnswers", "ChangedRows", "Level", "cascade_chain"]

ROWS = 256  # queries searched at a time
_GATHER = 1 << 24  # vector components gathered at a time
_DEAR = 128  # gathering one row for one query costs about as much as this many rows in a matrix product


def cascade_chain(heads: Mapping[str, DenseSettings]) -> list[str]:
    """Return the heads of a cascade, coarse to fine: each but the first has candidates from the one before.

    The last one scores the labels themselves and proposes to no other. The list is empty if no head over the labels
    has candidates from another, and if several have: a cascade has one end.

    >>> from megalabel.heads.free import FreeSettings
    >>> meta = FreeSettings(space="clusters", loss="bce")
    >>> cascade_chain({"fine": FreeSettings(candidates={"from": "meta", "top": 3}, loss="bce"), "meta": meta})
    ['meta', 'fine']
    """
    sources = {head.candidates.source for head in heads.values() if head.candidates is not None}
    ends = [n for n, head in heads.items() if head.space is None and head.candidates is not None and n not in sources]
    if len(ends) != 1:
        return []
    chain = [ends[0]]
    while (candidates := heads[chain[0]].candidates) is not None:
        chain.insert(0, candidates.source)
    return chain


@dataclass(frozen=True)
class ChangedRows:
    """Vectors [c, d] and biases [c] of the labels ``ids`` [c], ascending, that were added or renamed."""

    ids: NDArray[np.int64]
    side: LabelSide


@dataclass(frozen=True, eq=False)
class Level:
    """One head of a cascade.

    Args:
        name: of the head.
        head: says what its scores mean as probabilities.
        side: vectors and bias of every item of its space.
        weight: power of its probability in the product.
        beam: how many of its best lead on to the next level; the last level has none.
        children: of each item, in the next level; None if the next level has the same items.
        changed: of a level over labels, those changed since training.
        graph: [n, n] over which the probabilities of the first level are propagated, or None.
    """

    name: str
    head: DenseHead
    side: LabelSide
    weight: float
    beam: int
    children: Children | None = None
    over_labels: bool = False
    changed: ChangedRows | None = None
    graph: sparse.csr_matrix | None = None

    def __len__(self) -> int:
        """Return the number of its items."""
        trained = len(self.side.vectors)
        return trained if self.changed is None else max(trained, int(self.changed.ids.max(initial=-1)) + 1)

    def log_probabilities(self, queries: Tensor, items: Tensor | None) -> Tensor:
        """Return log p [B, C] of the items [B, C] of each row, or of all [B, n]; queries are those of the head."""
        if self.side.bias is None:
            queries = queries / self.head.temperature()  # of a head with a bias they are divided already
        if items is None:
            vectors, bias = self._rows(torch.arange(len(self), device=queries.device) if self.changed else None)
            logits = queries @ vectors.T
            logs = self.head.log_probabilities(logits if bias is None else logits + bias)
            return logs if self.graph is None else _propagated(logs, self.graph)
        ids = items.clamp_min(0)
        pool, places = torch.unique(ids, return_inverse=True)
        if len(pool) <= _DEAR * ids.shape[1]:
            vectors, bias = self._rows(pool)
            logits = (queries @ vectors.T).gather(1, places)
            return self.head.log_probabilities(logits if bias is None else logits + bias[places])
        rows = max(1, _GATHER // (ids.shape[1] * queries.shape[1]))
        parts = []
        for some, vectors in zip(torch.split(ids, rows), torch.split(queries, rows), strict=True):
            gathered, bias = self._rows(some.reshape(-1))
            logits = torch.bmm(gathered.view(*some.shape, -1), vectors.unsqueeze(2)).squeeze(2)
            parts.append(logits if bias is None else logits + bias.view(some.shape))
        return self.head.log_probabilities(torch.cat(parts))

    def _rows(self, ids: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Return the vectors and biases of items, all if there are no ids; those changed since training as they are."""
        vectors, bias = self.side.vectors, self.side.bias
        if ids is None:
            return vectors, bias
        trained = ids.clamp_max(len(vectors) - 1)
        vectors, bias = vectors.index_select(0, trained), None if bias is None else bias.index_select(0, trained)
        if self.changed is None:
            return vectors, bias
        known = torch.from_numpy(self.changed.ids).to(ids.device)
        place = torch.searchsorted(known, ids).clamp_max(len(known) - 1)
        own = torch.nonzero(known[place] == ids).squeeze(1)
        rows = self.changed.side
        vectors = vectors.index_copy(0, own, rows.vectors[place[own]].to(vectors))
        if bias is not None:
            assert rows.bias is not None
            bias = bias.index_copy(0, own, rows.bias[place[own]].to(bias))
        return vectors, bias


@dataclass(frozen=True, eq=False)
class Cascade:
    """Heads searched coarse to fine: only labels in groups that survive are scored.

    Of level i, with w_i the ``weight`` and p_i the probability that the head gives (a sigmoid of its score, unless its
    kind says otherwise), the ``beam`` items with the largest product over the levels so far

        p(item) = max over the items above it of p(above) x a(above, item) x p_i(item)^w_i

    lead on to the next level, and the labels of the last level are ranked by it. The weight a of a link is 1 unless the
    head learns it. An item below several others takes the best way. Probabilities of the first level may be propagated
    over a graph of its items, p <- min(1, p G), as the shortlist of ECLARE is (Mittal et al., WWW 2021). With a beam as
    wide as every level, all labels are scored and the ranking is exact. The product of meta-label and label probability
    is that of LightXML (Jiang et al., AAAI 2021) and InceptionXML+ (Kharbanda et al., SIGIR 2023); weights per level
    are those of CascadeXML (Kharbanda et al., NeurIPS 2022).

    Args:
        levels: coarse to fine; the last is over the labels.
        removed: [r] labels that are never returned.
    """

    levels: tuple[Level, ...]
    removed: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    @classmethod
    def of(
        cls,
        network: Network,
        sides: Mapping[str, LabelSide],
        beam: Mapping[str, int],
        weights: Mapping[str, float],
    ) -> Cascade:
        """Return the cascade of a trained network.

        Args:
            network: its heads say which proposes candidates to which.
            sides: vectors of every item of each head's space (:func:`~megalabel.network.vectors.space_side`).
            beam: items that lead on, by head.
            weights: powers of probabilities, by head; 1 if not named.
        """
        chain = cascade_chain({name: network.head(name).settings for name in network.heads})
        levels = []
        for name, finer in zip(chain, [*chain[1:], None], strict=True):
            space = network.space(name)
            levels.append(
                Level(
                    name,
                    network.head(name),
                    sides[name],
                    weights.get(name, 1.0),
                    beam.get(name, 0),
                    None if finer is None else _children(space, network.space(finer), network.head(finer)),
                    over_labels=space.members is None,
                    graph=space.graph if name == chain[0] else None,
                )
            )
        return cls(tuple(levels))

    def having(
        self, spaces: Mapping[str, LabelSpace], changed: Mapping[str, ChangedRows], removed: NDArray[np.int64]
    ) -> Cascade:
        """Return the cascade after labels were added, renamed or removed.

        Args:
            spaces: of every label now, by head.
            changed: rows of added and renamed labels, by head.
            removed: labels that are never returned.
        """
        levels = []
        for level, finer in zip(self.levels, [*self.levels[1:], None], strict=True):
            new = replace(level, changed=changed.get(level.name) if level.over_labels else None)
            if finer is not None and finer.over_labels and not level.over_labels and changed:
                new = replace(new, children=_children(spaces[level.name], spaces[finer.name], finer.head))
            levels.append(new)
        return Cascade(tuple(levels), removed)

    def answers(self, queries: Mapping[str, Tensor]) -> CascadeAnswers:
        """Return the scores of queries, given their vectors by head."""
        return CascadeAnswers(self, queries)


@dataclass(frozen=True)
class CascadeAnswers:
    """Products of probabilities along a cascade; see :class:`megalabel.heads.answers.Answers`."""

    cascade: Cascade
    queries: Mapping[str, Tensor]  # [Q, d] by head

    def best(self, k: int, exclude: sparse.csr_matrix | None) -> TopK:
        """Return the k best of the labels that the beam reaches; -1 fills a row with fewer."""
        total = len(self.queries[self.cascade.levels[0].name])
        ids = np.full((total, k), -1, dtype=np.int64)
        scores = np.full((total, k), -np.inf, dtype=np.float32)
        for start in range(0, total, ROWS):
            rows = slice(start, min(start + ROWS, total))
            found, values = self._search(rows, k, None if exclude is None else exclude[rows])
            width = min(k, found.shape[1])
            ids[rows, :width] = np.where(values[:, :width] > -np.inf, found[:, :width], -1)
            scores[rows, :width] = np.where(values[:, :width] > -np.inf, np.exp(values[:, :width]), -np.inf)
        return TopK(ids, scores)

    @torch.no_grad()
    def _search(
        self, rows: slice, k: int, exclude: sparse.csr_matrix | None
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return labels [B, at most k], best first, and their log p; -inf for none."""
        items: NDArray[np.int64] | None = None
        above = np.zeros((rows.stop - rows.start, 1))  # in float64, where a probability near 1 still counts
        for level in self.cascade.levels:
            queries = self.queries[level.name][rows]
            places = None if items is None else torch.from_numpy(items).to(queries.device)
            values = level.log_probabilities(queries, places).cpu().numpy()
            totals = above + level.weight * values.astype(np.float64)
            if items is None:
                items = np.broadcast_to(np.arange(totals.shape[1]), totals.shape)
            if level.over_labels:
                totals = np.where(_hidden(items, self.cascade.removed, exclude), -np.inf, totals)
            last = level is self.cascade.levels[-1]
            items, above = best_items(items, totals, k if last else level.beam)
            if not last and level.children is not None:
                items, above = level.children.shortlist(items, above)
        assert items is not None
        return items, above

    def score(self, candidates: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the probabilities [Q, C] of given labels, whether or not a beam reaches them."""
        parts = np.stack([*self.parts(candidates).values()])
        scores: NDArray[np.float32] = np.exp(parts.sum(axis=0)).astype(np.float32)
        return scores

    @torch.no_grad()
    def parts(self, candidates: NDArray[np.int64]) -> dict[str, NDArray[np.float64]]:
        """Return what each level adds to the log of the probability [Q, C] of given labels, along the best way."""
        levels = self.cascade.levels
        last = torch.from_numpy(np.ascontiguousarray(candidates))
        values: list[NDArray[np.float64]] = []  # weighted log p of all items of a level [Q, n], of the last [Q, C]
        for level in levels:
            queries = self.queries[level.name]
            places = last.to(queries.device) if level is levels[-1] else None
            values.append(level.weight * level.log_probabilities(queries, places).cpu().numpy().astype(np.float64))
        ways = _best_ways(levels, values)
        parts = {level.name: np.zeros(candidates.shape) for level in levels}
        parts[levels[-1].name] = values[-1]
        for row, column in np.ndindex(*candidates.shape):
            item = int(candidates[row, column])
            for number in range(len(levels) - 2, -1, -1):
                if item < 0:
                    break
                item, link = _way(levels[number], item, ways[number][row])
                parts[levels[number].name][row, column] = values[number][row, item]
                parts[levels[number + 1].name][row, column] += link
        return parts


def _propagated(logs: Tensor, graph: sparse.csr_matrix) -> Tensor:
    """Return log min(1, S G) [B, n] of S = e^logs [B, n]: what the graph adds to a shortlist, as in ECLARE."""
    chances = np.exp(logs.cpu().numpy().astype(np.float64))
    spread = np.asarray((graph.T @ chances.T).T)
    return torch.from_numpy(np.log(np.clip(spread, 1e-300, 1.0))).to(logs.device, logs.dtype)


def _children(space: LabelSpace, finer: LabelSpace, head: DenseHead) -> Children | None:
    """Return which items of a finer space, scored by a head, are below those of a space; None for the same items."""
    relation = space.relation(finer)
    return None if relation is None else head.reached_from(relation)


def _hidden(
    items: NDArray[np.int64], removed: NDArray[np.int64], exclude: sparse.csr_matrix | None
) -> NDArray[np.bool_]:
    """Return which labels [B, C] of each row must not be returned."""
    hidden: NDArray[np.bool_] = items < 0
    if len(removed):
        hidden = hidden | np.isin(items, removed)
    if exclude is not None:
        for row in np.flatnonzero(np.diff(exclude.indptr)).tolist():
            hidden[row] |= np.isin(items[row], exclude.indices[exclude.indptr[row] : exclude.indptr[row + 1]])
    return hidden


def _best_ways(levels: Sequence[Level], values: Sequence[NDArray[np.float64]]) -> list[NDArray[np.float64]]:
    """Return the total [Q, n] of the best way to every item of each level but the last."""
    ways = [values[0]] if len(levels) > 1 else []
    for level, below in zip(levels[:-2], values[1:-1], strict=True):
        if level.children is None:
            ways.append(ways[-1] + below)
            continue
        best = np.full(below.shape, -np.inf)
        for item in range(below.shape[1]):
            above, links = level.children.above(item)
            if len(above):
                best[:, item] = (ways[-1][:, above] + links).max(axis=1) + below[:, item]
        ways.append(best)
    return ways


def _way(level: Level, item: int, totals: NDArray[np.float64]) -> tuple[int, float]:
    """Return the item of a level on the best way to an item of the next, and the log of the weight of that link."""
    if level.children is None:
        return item, 0.0
    above, links = level.children.above(item)
    best = int(np.argmax(totals[above] + links))
    return int(above[best]), float(links[best])
