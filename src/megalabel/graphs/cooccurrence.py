"""Label graph from counts: how often labels are relevant together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

from megalabel.graphs._checks import check_delta, check_least_one, stack, zero_one
from megalabel.graphs._top import keep_top
from megalabel.progress import progress

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

__all__ = ["cooccurrence"]

_PRODUCTS = 1 << 24  # pairs of labels of one point in a block, about 200 MB before pruning


def cooccurrence(
    targets: sparse.csr_matrix,
    delta: float = 0.1,
    *,
    top: int | None = None,
    block: int | None = None,
    share_rows: bool = False,
    shrink: int = 0,
) -> sparse.csr_matrix:
    """Estimate the targets of each label text: the share of its points that have the other label too.

    With G = Y^T Y over Y as zeros and ones, c_ij = G_ij / G_jj estimates P(Y_i = 1 | Y_j = 1),
    and text j as a query gets target c_ij for label i where c_ij > delta, a strict inequality
    (Gandalf: Kharbanda et al. 2024, arXiv 2405.04545, label-feature annotation). The divisor is
    the count of j, the label whose text is the query, so c is not symmetric. The diagonal is always 1,
    even for a label without points, which has no other target.

    A point counts once for each pair of its labels: soft targets count as 1. So c stays a
    share of points, and the counts are those of the propensities and of :func:`random_walk`.

    Two other estimates trust doubtful pairs less. With ``share_rows`` a point s counts 1 / (m_s - 1) for each
    pair of its m_s labels: c_ij = (1 / G_jj) sum_s y_si y_sj / (m_s - 1), so that the targets of a text other than
    itself add up to 1 at most, and a point with hundreds of labels hands on little. With ``shrink`` k,
    c_ij = G_ij / (G_jj + k), so that a label with one point has no target of 1 but itself.

    G is computed and pruned block by block and never held as a whole. Memory beyond the
    targets is their transpose, one block and the result.

    Args:
        targets: Y [N, L], csr, values in (0, 1].
        delta: targets must be above it, in [0, 1).
        top: largest number of targets per row, including the label itself; ties go to the
            lower id. None keeps all.
        block: labels per block; None picks blocks of equal work, about 200 MB each. The result is the same.
        share_rows: a point counts 1 / (its labels - 1) for each pair, not 1.
        shrink: added to the count of the query label.

    Returns:
        [L, L] float32 in (delta, 1], columns sorted; row j holds the targets of label text j.

    >>> Y = sparse.csr_matrix([[1, 1, 0], [1, 0, 1], [1, 1, 0], [1, 0, 0]])
    >>> cooccurrence(Y, delta=0.25).toarray().tolist()
    [[1.0, 0.5, 0.0], [1.0, 1.0, 0.0], [1.0, 0.0, 1.0]]
    >>> cooccurrence(Y, delta=0.25, shrink=3)[2].toarray().tolist(), cooccurrence(Y, shrink=3)[2].toarray().tolist()
    ([[0.0, 0.0, 1.0]], [[0.25, 0.0, 1.0]])
    """
    check_delta(delta)
    check_least_one("top", top)
    check_least_one("block", block)
    check_least_one("shrink + 1", shrink + 1)
    ones = zero_one(targets)
    points = ones.T.tocsr()  # [L, N] points of each label
    frequency = np.diff(points.indptr)
    order = np.argsort(-frequency, kind="stable")  # frequent labels first, for locality
    rank = np.empty(len(order), dtype=ones.indices.dtype)
    rank[order] = np.arange(len(order))
    weights = _row_shares(ones) if share_rows else ones.data
    ranked = sparse.csr_matrix((weights, rank[ones.indices], ones.indptr), shape=ones.shape)
    divisor = frequency + shrink
    min_count = np.nextafter(delta * divisor, np.inf) if share_rows else _min_counts(divisor, delta)
    parts = []
    with progress("counting pairs of labels", total=len(frequency), unit="labels") as step:
        for start, stop in _blocks(ones, points, block):
            counts = points[start:stop] @ ranked
            labels = np.arange(start, stop)
            rows = _rows(counts, labels, order, divisor[start:stop], min_count[start:stop])
            parts.append(rows if top is None else keep_top(rows, top, labels))
            step(stop - start)
    return stack(parts)


def _row_shares(ones: sparse.csr_matrix) -> NDArray[np.float64]:
    """Return for each cell 1 / (labels of its row - 1); a row with one label has no pairs."""
    sizes = np.diff(ones.indptr)
    return np.repeat(1.0 / np.maximum(sizes - 1, 1), sizes)


def _min_counts(frequency: NDArray[np.integer], delta: float) -> NDArray[np.int64]:
    """Return the smallest count whose share of each label's points is above delta.

    Shares are compared in float64, where 1 / 10 is not above 0.1; in float32 it would be.
    """
    min_count: NDArray[np.int64] = np.maximum(np.floor(delta * frequency).astype(np.int64), 1)
    for _ in range(2):
        min_count = min_count + (min_count / np.maximum(frequency, 1) <= delta).astype(np.int64)
    return min_count


def _blocks(ones: sparse.csr_matrix, points: sparse.csr_matrix, block: int | None) -> Iterator[tuple[int, int]]:
    """Yield the first and the last + 1 label of each block."""
    labels = points.shape[0]
    if block is None:
        sizes = np.r_[0, np.cumsum(np.diff(ones.indptr)[points.indices], dtype=np.int64)]
        work = sizes[points.indptr]  # [L + 1] products before each label
        ends = np.searchsorted(work, np.arange(_PRODUCTS, work[-1], _PRODUCTS))
        cuts: NDArray[np.int64] = np.unique(np.r_[0, ends, labels])
    else:
        cuts = np.r_[np.arange(0, labels, block), labels]
    yield from zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True)


def _rows(
    counts: sparse.csr_matrix,
    labels: NDArray[np.int64],
    order: NDArray[np.int64],
    divisor: NDArray[np.integer],
    min_count: NDArray[np.int64] | NDArray[np.float64],
) -> sparse.csr_matrix:
    """Return the rows ``labels`` of the result from those of G, whose column c is label order[c]."""
    sizes = np.diff(counts.indptr)
    keep = np.flatnonzero(counts.data >= np.repeat(min_count.astype(counts.dtype), sizes))
    rows = np.searchsorted(counts.indptr, keep, side="right") - 1
    columns = order[counts.indices[keep]]
    off = columns != labels[rows]
    keep, rows, columns = keep[off], rows[off], columns[off]
    share = counts.data[keep] / divisor[rows]
    cells = (np.r_[rows, np.arange(len(labels))], np.r_[columns, labels])
    values = np.r_[share, np.ones(len(labels))].astype(np.float32)
    return sparse.csr_matrix((values, cells), shape=counts.shape)
