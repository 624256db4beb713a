"""Hard negatives of training rows: the labels of their nearest other rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

from megalabel.errors import SettingError
from megalabel.graphs._top import keep_top
from megalabel.heads.memory import Memory
from megalabel.heads.sparse.rows import as_targets
from megalabel.progress import progress

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["hard_negatives"]

_CHUNK = 4_096  # rows mined at a time: with many labels per row, their scores take much memory


def hard_negatives(
    memory: Memory,
    vectors: sparse.csr_matrix | NDArray[np.float32],
    targets: sparse.csr_matrix,
    exclude: sparse.csr_matrix | None = None,
    *,
    per_row: int = 50,
) -> sparse.csr_matrix:
    """Return the labels of each training row's nearest other rows that are not its own.

    The memory scores each row without itself; positives and the pairs of ``exclude`` are
    dropped, and the best ``per_row`` of each row kept.

    Args:
        memory: fitted with the same rows, in the same order.
        vectors: [N, F] or [N, d], the same.
        targets: [N, L] relevance; what is above zero is no negative.
        exclude: [N, L] pairs that are neither right nor wrong.
        per_row: largest number of negatives per row.

    Returns:
        [N, L] float32, the memory's score of each pair, columns sorted.

    >>> rows = np.array([[1, 0], [1, 0.1], [0, 1]], dtype=np.float32)
    >>> targets = sparse.csr_matrix(np.eye(3, dtype=np.float32))
    >>> hard_negatives(Memory().fit(rows, targets), rows, targets, per_row=1).nonzero()[1].tolist()
    [1, 0, 1]
    """
    if per_row < 1:
        raise SettingError(f"per_row must be at least 1, not {per_row}")
    shape = vectors.shape[0], memory.targets_.shape[1]
    known = as_targets(targets, "targets", shape)
    if exclude is not None:
        known = sparse.csr_matrix(abs(known) + abs(as_targets(exclude, "exclude", shape)))
    parts = []
    with progress("mining negatives", total=shape[0]) as step:
        for start in range(0, shape[0], _CHUNK):
            rows = np.arange(start, min(start + _CHUNK, shape[0]))
            scores = memory.scores(vectors[start : start + _CHUNK], rows=rows)
            parts.append(keep_top(_without(scores, known[start : start + _CHUNK]), per_row))
            step(len(rows))
    return sparse.csr_matrix(sparse.vstack(parts, format="csr"))


def _without(scores: sparse.csr_matrix, cells: sparse.csr_matrix) -> sparse.csr_matrix:
    """Return the scores without the cells that the other matrix holds."""
    ones = sparse.csr_matrix((np.ones(cells.nnz, dtype=np.float32), cells.indices, cells.indptr), shape=cells.shape)
    rest = sparse.csr_matrix(scores - scores.multiply(ones))
    rest.eliminate_zeros()
    rest.sort_indices()
    return rest
