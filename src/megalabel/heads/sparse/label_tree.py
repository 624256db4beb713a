"""Grow a tree of labels and train a sparse linear ranker for each of its nodes."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from megalabel.graphs import partition, partition_tree
from megalabel.heads.sparse.in_blocks import in_blocks
from megalabel.heads.sparse.rows import no_cells
from megalabel.types import TopK

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from megalabel.heads.sparse.tree_level import TreeLevel

__all__ = ["BELOW", "Level", "Solver", "grow_tree", "join", "paths", "root", "row_lengths", "unit_rows"]

BELOW = np.float32(-2.0)  # bias of a node without positive rows
_PARENTS = 8  # parents whose children are trained per task


@dataclass
class Level:
    """The nodes of one level: weights [n, F], bias [n], parent [n] among ``parents``."""

    weights: sparse.csr_matrix
    bias: NDArray[np.float32]
    parent: NDArray[np.int64]
    parents: int

    @cached_property
    def searched(self) -> TreeLevel:
        """The weights as a search reads them, made on first use."""
        from megalabel.heads.sparse.tree_level import TreeLevel

        return TreeLevel(self.weights, self.bias, self.parent, self.parents)

    def without(self, nodes: NDArray[np.int64]) -> Level:
        """Return a level that never returns these nodes."""
        smaller = copy(self)
        smaller.searched = self.searched.without(nodes)
        return smaller


@dataclass(frozen=True)
class Solver:
    """How rankers are trained: costs of positive and negative rows, when to stop, and weights that are dropped."""

    costs: tuple[float, float]
    tolerance: float
    passes: int
    prune: float


def grow_tree(
    x: sparse.csr_matrix,
    dense: NDArray[np.float32],
    y: sparse.csr_matrix,
    exclude: sparse.csr_matrix,
    vectors: sparse.csr_matrix | NDArray[np.float32],
    *,
    leaf: int,
    branches: int,
    mined: int,
    solver: Solver,
    seed: int,
) -> list[Level]:
    """Return the levels of one tree, trained from the top; the last is that of the labels.

    Args:
        x: [N, F] sparse features of the training rows.
        dense: [N, d] dense features beside them; d may be 0.
        y: [N, L] relevance in (0, 1].
        exclude: [N, L] pairs that are neither right nor wrong.
        vectors: [L, d] of the labels, by which they are clustered.
        leaf: largest number of labels per cluster.
        branches: largest number of children of a node above the clusters.
        mined: best-ranked nodes of each row whose children it trains, beside those of its labels.
        solver: how each ranker is trained.
        seed: random seed.
    """
    cluster = partition(vectors, size=leaf, seed=seed)
    parents = [*partition_tree(int(cluster.max()) + 1, branches=branches), cluster]
    sizes = [1, *(len(level) for level in parents)]
    targets = [y]  # of each level, from the labels up
    for parent, size in zip(parents[:0:-1], sizes[-2:0:-1], strict=True):
        targets.append(_grouped(targets[-1], parent, size))
    rows_of = sparse.csr_matrix(np.ones((x.shape[0], 1), dtype=np.float32))
    beam, joined = root(x.shape[0]), join(x, dense) if mined else x
    levels: list[Level] = []
    for depth, parent in enumerate(parents):
        labels = depth == len(parents) - 1
        known = targets[len(parents) - 1 - depth]
        level = _solve(x, dense, rows_of, parent, known, exclude if labels else no_cells(known.shape), solver, seed)
        levels.append(level)
        rows_of = known
        if mined and not labels:
            beam = level.searched.search(joined, beam, mined)
            rows_of = sparse.csr_matrix(known + _cells(beam.ids, known.shape))
    return levels


def join(x: sparse.csr_matrix, dense: NDArray[np.float32]) -> sparse.csr_matrix:
    """Return sparse and dense features [N, F + d] side by side."""
    if dense.shape[1] == 0:
        return x
    return sparse.csr_matrix(sparse.hstack([x, sparse.csr_matrix(dense)], format="csr"), dtype=np.float32)


def _solve(
    x: sparse.csr_matrix,
    dense: NDArray[np.float32],
    rows_of: sparse.csr_matrix,
    parent: NDArray[np.int64],
    y: sparse.csr_matrix,
    exclude: sparse.csr_matrix,
    solver: Solver,
    seed: int,
) -> Level:
    """Train the nodes of a level, given the rows [N, parents] of each parent and the targets [N, nodes]."""
    from megalabel.heads.sparse.dual_descent import solve_children

    parents = rows_of.shape[1]
    nodes = np.argsort(parent, kind="stable")
    children = np.searchsorted(parent[nodes], np.arange(parents + 1)), nodes
    by_parent, by_node, out = rows_of.tocsc(), y.tocsc(), exclude.tocsc()
    positives = by_node.indptr, by_node.indices, by_node.data

    def work(start: int, stop: int) -> tuple[NDArray[Any], ...]:
        return solve_children(
            start, stop, (x.indptr, x.indices, x.data), dense, (by_parent.indptr, by_parent.indices), children,
            positives, (out.indptr, out.indices), x.shape[1], solver.costs, seed, solver.tolerance, solver.passes,
            solver.prune,
        )  # fmt: skip

    parts = in_blocks(work, parents, _PARENTS, "training", unit="nodes")
    sizes, columns, weights, biases = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    indptr = np.concatenate([[0], np.cumsum(sizes)])
    back = np.empty_like(nodes)
    back[nodes] = np.arange(len(nodes))
    matrix = sparse.csr_matrix((weights, columns, indptr), shape=(len(nodes), x.shape[1] + dense.shape[1]))[back]
    matrix.sort_indices()
    bias = biases[back]
    bias[np.diff(by_node.indptr) == 0] = BELOW
    return Level(matrix, bias, parent.astype(np.int64), parents)


def root(queries: int) -> TopK:
    """Return a beam that holds only the root."""
    return TopK(np.zeros((queries, 1), dtype=np.int64), np.zeros((queries, 1), dtype=np.float32))


def paths(levels: list[Level], x: sparse.csr_matrix, nodes: NDArray[np.int64], depth: int) -> NDArray[np.float32]:
    """Return the log scores [Q, C] of nodes of a level, the one after ``depth`` levels; node -1 has -inf."""
    path = [nodes]
    for level in reversed(levels[1:depth]):
        path.append(np.where(path[-1] >= 0, level.parent[path[-1]], -1))
    scores = np.zeros(nodes.shape, dtype=np.float32)
    for level, wanted in zip(levels[:depth], reversed(path), strict=False):
        scores = level.searched.scores(x, np.ascontiguousarray(wanted), scores)
    return scores


def _grouped(targets: sparse.csr_matrix, group: NDArray[np.int64], groups: int) -> sparse.csr_matrix:
    """Return relevance [N, groups] from that of the members [N, n]: the sum, at most 1."""
    members = sparse.csr_matrix((np.ones(len(group), dtype=np.float32), (np.arange(len(group)), group)),
                                shape=(len(group), groups))  # fmt: skip
    grouped = sparse.csr_matrix(targets @ members, dtype=np.float32)
    grouped.sort_indices()
    np.minimum(grouped.data, 1, out=grouped.data)
    return grouped


def _cells(ids: NDArray[np.int64], shape: tuple[int, int]) -> sparse.csr_matrix:
    """Return a matrix with ones at the columns [N, k] of each row; -1 is none."""
    real = ids >= 0
    indptr = np.concatenate([[0], np.cumsum(real.sum(axis=1))])
    return sparse.csr_matrix((np.ones(int(real.sum()), dtype=np.float32), ids[real], indptr), shape=shape)


def unit_rows(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the vectors scaled to length 1."""
    rows = np.ascontiguousarray(vectors, dtype=np.float32)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    unit: NDArray[np.float32] = np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)
    return unit


def row_lengths(rows: sparse.csr_matrix) -> NDArray[np.float32]:
    """Return the length of each sparse row."""
    lengths: NDArray[np.float32] = np.sqrt(np.asarray(rows.power(2).sum(axis=1), dtype=np.float32)).ravel()
    return lengths
