"""Hard negatives of training rows: the labels of their nearest other rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

from megalabel.errors import SettingError
from megalabel.graphs._top import keep_top
from megalabel.heads.memory import Memory
from megalabel.heads.sparse.rows import as_targets, no_cells
from megalabel.progress import progress

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["hard_negatives", "nearest_labels"]

_CHUNK = 4_096  # rows mined at a time: with many labels per row, their scores take much memory


def hard_negatives(
    memory: Memory,
    vectors: sparse.csr_matrix | NDArray[np.float32],
    targets: sparse.csr_matrix,
    exclude: sparse.csr_matrix | None = None,
    *,
    per_row: int = 50,
    only: NDArray[np.int64] | None = None,
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
        only: rows to mine for, in ascending order; None for all. The others have no negatives.

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
    mined = np.arange(shape[0]) if only is None else only
    with progress("mining negatives", total=len(mined)) as step:
        for start in range(0, len(mined), _CHUNK):
            rows = mined[start : start + _CHUNK]
            scores = memory.scores(vectors[rows], rows=rows)
            parts.append(keep_top(_without(scores, known[rows]), per_row))
            step(len(rows))
    found = sparse.csr_matrix(sparse.vstack(parts, format="csr")) if parts else no_cells((0, shape[1]))
    if only is None:
        return found
    sizes = np.zeros(shape[0], dtype=np.int64)
    sizes[only] = np.diff(found.indptr)
    return sparse.csr_matrix((found.data, found.indices, np.concatenate([[0], np.cumsum(sizes)])), shape=shape)


def nearest_labels(
    rows: sparse.csr_matrix,
    targets: sparse.csr_matrix,
    exclude: sparse.csr_matrix,
    per_row: int,
    max_df: float,
    only: NDArray[np.int64] | None = None,
) -> sparse.csr_matrix:
    """Return the hard negatives of training rows by a memory of these rows; ``max_df`` as in :class:`Memory`."""
    return hard_negatives(Memory(max_df=max_df).fit(rows, targets), rows, targets, exclude, per_row=per_row, only=only)


def _without(scores: sparse.csr_matrix, cells: sparse.csr_matrix) -> sparse.csr_matrix:
    """Return the scores without the cells that the other matrix holds."""
    ones = sparse.csr_matrix((np.ones(cells.nnz, dtype=np.float32), cells.indices, cells.indptr), shape=cells.shape)
    rest = sparse.csr_matrix(scores - scores.multiply(ones))
    rest.eliminate_zeros()
    rest.sort_indices()
    return rest
