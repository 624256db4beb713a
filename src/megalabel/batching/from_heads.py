"""Candidates from the scores of another head, as in meta-classifiers, cascades and trees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from scipy import sparse

from megalabel.batching.negatives import pairs_matrix
from megalabel.types import Targets, View

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["HeadCandidates"]


@dataclass(frozen=True, eq=False)
class HeadCandidates:
    """Build the candidates of each row: the labels that another head scores best, and the row's positives.

    Targets come from the full relevance matrix, so a known positive is never a negative, and a positive is always
    among the candidates (teacher forcing). Filter pairs are dropped.

    LightXML (Jiang et al., AAAI 2021), CascadeXML (Kharbanda et al., NeurIPS 2022) and InceptionXML+ train
    classifiers on such candidates.

    Args:
        targets: [N, size] relevance of the train rows in the space of the head that is trained.
        relation: [groups, size], 1 if a group of the proposing head's space contains a label of this space; None
            if both heads score the same space.
        filter: [n, 2] pairs (row, label) that are neither right nor wrong, or None.
        graph: [groups, groups] weights over which the proposing head's probabilities are propagated, or None.

    >>> relation = sparse.csr_matrix(np.array([[1, 1, 0, 0], [0, 0, 1, 1]], dtype=np.float32))
    >>> maker = HeadCandidates(sparse.csr_matrix(np.array([[1, 0, 0, 1]], dtype=np.float32)), relation)
    >>> view = maker.view(np.array([0]), np.array([[0]]))  # group 0 is proposed
    >>> view.candidates.tolist(), view.targets.dense().tolist()
    ([[0, 1, 3]], [[1.0, 0.0, 1.0]])
    """

    targets: sparse.csr_matrix
    relation: sparse.csr_matrix | None = None
    filter: NDArray[np.int64] | None = None
    graph: sparse.csr_matrix | None = None

    def propagated(self, proposed: NDArray[np.int64], scores: NDArray[np.float32]) -> NDArray[np.int64]:
        r"""Return the best [B, top] of S G, where S holds sigma(score) of the proposed [B, top], padded with -1.

        Ties go to the lower number; a row of S G with fewer than ``top`` cells is filled with what was proposed.

        >>> graph = sparse.csr_matrix(np.array([[0.5, 0, 0.5], [0, 1, 0], [0, 0, 1]], dtype=np.float32))
        >>> maker = HeadCandidates(sparse.csr_matrix((1, 3)), graph=graph)
        >>> maker.propagated(np.array([[0, 1]]), np.array([[4.0, -4.0]], dtype=np.float32)).tolist()
        [[0, 2]]
        """
        assert self.graph is not None
        top, valid = proposed.shape[1], proposed >= 0
        rows = np.repeat(np.arange(len(proposed)), valid.sum(axis=1))
        chances = 1 / (1 + np.exp(-scores[valid].astype(np.float64)))
        given = sparse.csr_matrix((chances, (rows, proposed[valid])), shape=(len(proposed), self.graph.shape[0]))
        spread = sparse.csr_matrix(given @ self.graph)
        cells = np.repeat(np.arange(len(proposed)), np.diff(spread.indptr))
        order = np.lexsort((spread.indices, -spread.data, cells))
        place = np.arange(spread.nnz) - spread.indptr[cells]
        best = proposed.copy()
        kept = place < top
        best[cells[kept], place[kept]] = spread.indices[order][kept]
        return best

    def view(self, rows: NDArray[np.int64], proposed: NDArray[np.int64]) -> View:
        """Return the candidates of ``rows`` [B], given the proposed groups or labels [B, top], padded with -1."""
        size = self.targets.shape[1]
        valid = proposed >= 0
        picked = np.repeat(np.arange(len(rows)), valid.sum(axis=1)), proposed[valid]
        groups = size if self.relation is None else self.relation.shape[0]
        chosen = sparse.csr_matrix((np.ones(len(picked[0]), dtype=np.float32), picked), shape=(len(rows), groups))
        labels = chosen if self.relation is None else sparse.csr_matrix(chosen @ self.relation)
        truth = sparse.csr_matrix(self.targets[rows])
        cells = sparse.csr_matrix(_ones(labels) + _ones(truth))
        if self.filter is not None and len(self.filter):
            ignored = _ones(sparse.csr_matrix(pairs_matrix(self.filter, self.targets.shape)[rows]))
            cells = sparse.csr_matrix(cells - cells.multiply(ignored))
            truth = sparse.csr_matrix(truth - truth.multiply(ignored))
            cells.eliminate_zeros()
            truth.eliminate_zeros()
        cells.sort_indices()
        return _padded(cells, truth)


def _padded(cells: sparse.csr_matrix, truth: sparse.csr_matrix) -> View:
    """Return the labels of each row side by side, padded with -1, and their targets."""
    counts = np.diff(cells.indptr)
    rows = np.repeat(np.arange(cells.shape[0]), counts)
    slots = np.arange(cells.nnz) - np.repeat(cells.indptr[:-1], counts)
    candidates = np.full((cells.shape[0], max(1, int(counts.max(initial=0)))), -1, dtype=np.int64)
    candidates[rows, slots] = cells.indices
    keys = rows * np.int64(cells.shape[1]) + cells.indices  # ascending
    truth.sort_indices()
    positive = np.repeat(np.arange(truth.shape[0]), np.diff(truth.indptr))
    places = np.searchsorted(keys, positive * np.int64(cells.shape[1]) + truth.indices)
    targets = Targets(
        torch.from_numpy(positive.astype(np.int64)),
        torch.from_numpy(slots[places].astype(np.int64)),
        torch.from_numpy(truth.data.astype(np.float32)),
        (candidates.shape[0], candidates.shape[1]),
    )
    present = candidates >= 0
    return View(
        targets,
        pool=torch.from_numpy(np.unique(candidates[present])),
        candidates=torch.from_numpy(candidates),
        mask=torch.from_numpy(present),
    )


def _ones(matrix: sparse.csr_matrix) -> sparse.csr_matrix:
    return sparse.csr_matrix((np.ones(matrix.nnz, dtype=np.float32), matrix.indices, matrix.indptr), shape=matrix.shape)
