"""One level of a tree of sparse linear rankers, searched by beam; compiled by numba, which this file loads."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any

import numpy as np

from megalabel.compiled import compiled
from megalabel.heads.sparse.heap import push, sort_heap
from megalabel.heads.sparse.in_blocks import in_blocks
from megalabel.heads.sparse.inverted_index import score
from megalabel.heads.sparse.rows import no_cells
from megalabel.types import TopK

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from scipy import sparse

__all__ = ["TreeLevel"]

_BLOCK = 256  # queries per task
_PARENTS = 512  # parents per task
_LOOKUP = 12  # steps to find a feature of a parent
_INF = np.float32(np.inf)


class TreeLevel:
    r"""The nodes of one level, each with a ranker v(x) = <w, x> + b and a parent on the level above.

    A node adds log h(v) = -max(0, 1 - v)^3 to the score of its parent. Weights are stored parent by parent
    and, for each parent, feature by feature, so that a query looks up each of its features once for all children
    (Etter et al., "Accelerating inference for sparse extreme multi-label ranking trees", WWW 2022). Sums are
    float32 in ascending order of features.

    Args:
        weights: [n, F] csr, columns sorted.
        bias: [n].
        parent: [n], parent of each node.
        parents: number of parents.
    """

    def __init__(
        self, weights: sparse.csr_matrix, bias: NDArray[np.float32], parent: NDArray[np.int64], parents: int
    ) -> None:
        self.weights, self.parent, self.bias = weights, parent, bias
        self.nodes = np.argsort(parent, kind="stable")  # children of a parent are neighbours
        self.starts = np.searchsorted(parent[self.nodes], np.arange(parents + 1)).astype(np.int64)

        def work(start: int, stop: int) -> tuple[NDArray[Any], ...]:
            return _chunks(start, stop, weights.indptr, weights.indices, weights.data, self.nodes, self.starts)

        parts = in_blocks(work, parents, _PARENTS, "indexing", unit="nodes")
        features, cells, self.columns, self.slots, self.values = (
            np.concatenate(arrays) for arrays in zip(*parts, strict=True)
        )
        self.features = np.concatenate([[0], np.cumsum(features)])  # of each parent, in `columns`
        self.cells = np.concatenate([[0], np.cumsum(cells)])  # of each feature of a parent, in `slots` and `values`

    def without(self, removed: NDArray[np.int64]) -> TreeLevel:
        """Return a level that never returns these nodes and shares everything else with this one."""
        smaller = copy(self)
        smaller.bias = self.bias.copy()
        smaller.bias[removed] = -_INF
        return smaller

    def search(self, queries: sparse.csr_matrix, beam: TopK, k: int, exclude: sparse.csr_matrix | None = None) -> TopK:
        """Return the k best nodes of each query [Q, F] among the children of its beam, best first, ties by id.

        Args:
            queries: [Q, F] csr, columns sorted.
            beam: parents [Q, b] and their scores; -1 is no parent.
            k: nodes to keep.
            exclude: [Q, n], stored cells are left out.
        """
        ids = np.full((queries.shape[0], k), -1, dtype=np.int64)
        scores = np.full((queries.shape[0], k), -_INF, dtype=np.float32)
        out = no_cells((queries.shape[0], len(self.bias))) if exclude is None else exclude

        def work(start: int, stop: int) -> None:
            _search(
                start, stop, queries.indptr, queries.indices, queries.data, self._arrays(), beam.ids, beam.scores,
                out.indptr, out.indices, ids, scores,
            )  # fmt: skip

        in_blocks(work, len(ids), _BLOCK, "searching", unit="queries")
        return TopK(ids, scores)

    def scores(
        self, queries: sparse.csr_matrix, nodes: NDArray[np.int64], above: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """Return the scores [Q, C] of nodes, given those of their parents; bit for bit those of the search.

        Node -1 has -inf. Wanted nodes are added up one by one, or all children of their parents are, whichever is
        less work.
        """
        wanted, cells = nodes.shape[1], len(self.values)
        per_query = queries.nnz / max(1, queries.shape[0])
        per_feature = _LOOKUP + cells / max(1, len(self.columns))
        if wanted * cells / len(self.bias) < min(len(self.starts) - 1, wanted) * per_query * per_feature:
            below = np.maximum(np.float32(0), np.float32(1) - score(queries, self.weights, self.bias, nodes))
            return np.where(nodes >= 0, above - below * below * below, -_INF)
        scores = np.empty(nodes.shape, dtype=np.float32)

        def work(start: int, stop: int) -> None:
            arrays = self._arrays()
            _score(
                start, stop, queries.indptr, queries.indices, queries.data, arrays, self.parent, nodes, above, scores
            )

        in_blocks(work, len(nodes), _BLOCK, "scoring", unit="queries")
        return scores

    def _arrays(self) -> tuple[NDArray[Any], ...]:
        return self.starts, self.features, self.columns, self.cells, self.slots, self.values, self.nodes, self.bias


@compiled
def _chunks(
    start: int,
    stop: int,
    indptr: NDArray[np.int32],
    indices: NDArray[np.int32],
    data: NDArray[np.float32],
    nodes: NDArray[np.int64],
    starts: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int32], NDArray[np.int32], NDArray[np.float32]]:
    """Return the weights of the parents ``start`` to ``stop`` by parent and feature.

    That is: features per parent, cells per feature, the features, and the child, as a slot of ``nodes``, and weight
    of each cell.
    """
    total = 0
    for slot in range(starts[start], starts[stop]):
        total += indptr[nodes[slot] + 1] - indptr[nodes[slot]]
    features = np.zeros(stop - start, dtype=np.int64)
    cells, columns, size = np.zeros(total, dtype=np.int64), np.empty(total, dtype=np.int32), 0
    slots, values, filled = np.empty(total, dtype=np.int32), np.empty(total, dtype=np.float32), 0
    for parent in range(start, stop):
        count = 0
        for slot in range(starts[parent], starts[parent + 1]):
            count += indptr[nodes[slot] + 1] - indptr[nodes[slot]]
        column, child, value = np.empty(count, np.int32), np.empty(count, np.int32), np.empty(count, np.float32)
        count = 0
        for slot in range(starts[parent], starts[parent + 1]):
            for place in range(indptr[nodes[slot]], indptr[nodes[slot] + 1]):
                column[count], child[count], value[count] = indices[place], slot, data[place]
                count += 1
        order = np.argsort(column, kind="mergesort")
        for place in range(count):
            cell = order[place]
            if place == 0 or column[cell] != columns[size - 1]:
                columns[size] = column[cell]
                features[parent - start] += 1
                size += 1
            cells[size - 1] += 1
            slots[filled], values[filled] = child[cell], value[cell]
            filled += 1
    return features, cells[:size].copy(), columns[:size].copy(), slots, values


@compiled
def _add_up(
    parent: int,
    first: int,
    last: int,
    query: NDArray[np.int32],
    weights: NDArray[np.float32],
    level: tuple[NDArray[Any], ...],
    sums: NDArray[np.float32],
) -> None:
    """Set the sums [n], by slot, of the children of a parent to their rankers' values."""
    starts, features, columns, cells, slots, values, nodes, bias = level
    for slot in range(starts[parent], starts[parent + 1]):
        sums[slot] = bias[nodes[slot]]
    low, end = features[parent], features[parent + 1]
    for place in range(first, last):
        column, high = query[place], end
        while low < high:  # the first feature that is not below this one; those of a query ascend
            middle = (low + high) // 2
            if columns[middle] < column:
                low = middle + 1
            else:
                high = middle
        if low == end:
            break
        if columns[low] == column:
            for cell in range(cells[low], cells[low + 1]):
                sums[slots[cell]] += weights[place] * values[cell]


@compiled
def _log_hinge(value: np.float32) -> np.float32:
    """Return -max(0, 1 - v)^3."""
    below = max(np.float32(0), np.float32(1) - value)
    return -below * below * below


@compiled
def _search(
    start: int,
    stop: int,
    indptr: NDArray[np.int32],
    query: NDArray[np.int32],
    weights: NDArray[np.float32],
    level: tuple[NDArray[Any], ...],
    beam: NDArray[np.int64],
    above: NDArray[np.float32],
    out_indptr: NDArray[np.int32],
    out_nodes: NDArray[np.int32],
    ids: NDArray[np.int64],
    scores: NDArray[np.float32],
) -> None:
    """Fill rows ``start`` to ``stop`` of ids and scores."""
    starts, nodes = level[0], level[6]
    sums = np.empty(len(nodes), dtype=np.float32)
    hidden = np.full(len(nodes), -1, dtype=np.int64)  # the last query that excludes a node
    for row in range(start, stop):
        for place in range(out_indptr[row], out_indptr[row + 1]):
            hidden[out_nodes[place]] = row
        size = 0
        for place in range(beam.shape[1]):
            parent = beam[row, place]
            if parent < 0:
                continue
            _add_up(parent, indptr[row], indptr[row + 1], query, weights, level, sums)
            for slot in range(starts[parent], starts[parent + 1]):
                score = above[row, place] + _log_hinge(sums[slot])
                if score > -_INF and hidden[nodes[slot]] != row:
                    size = push(ids[row], scores[row], size, nodes[slot], score)
        sort_heap(ids[row], scores[row], size)


@compiled
def _score(
    start: int,
    stop: int,
    indptr: NDArray[np.int32],
    query: NDArray[np.int32],
    weights: NDArray[np.float32],
    level: tuple[NDArray[Any], ...],
    parent_of: NDArray[np.int64],
    wanted: NDArray[np.int64],
    above: NDArray[np.float32],
    scores: NDArray[np.float32],
) -> None:
    """Fill rows ``start`` to ``stop`` of the scores [Q, C] of given nodes."""
    starts, nodes = level[0], level[6]
    sums = np.empty(len(nodes), dtype=np.float32)
    slot_of = np.empty(len(nodes), dtype=np.int64)
    for slot in range(len(nodes)):
        slot_of[nodes[slot]] = slot
    known = np.full(len(starts) - 1, -1, dtype=np.int64)  # the last query for which a parent was added up
    for row in range(start, stop):
        for place in range(wanted.shape[1]):
            node = wanted[row, place]
            if node < 0:
                scores[row, place] = -_INF
                continue
            parent = parent_of[node]
            if known[parent] != row:
                _add_up(parent, indptr[row], indptr[row + 1], query, weights, level, sums)
                known[parent] = row
            scores[row, place] = above[row, place] + _log_hinge(sums[slot_of[node]])
