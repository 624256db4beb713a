"""Measure rankings by their hits: precision, recall, nDCG, MRR, hit rate and R-precision.

Each function takes :class:`~megalabel.metrics.hits.Hits` and the cut-offs ``ks``, and returns one
fraction per k, averaged over all N queries. A query without relevant labels counts 0, and the missing
labels of a ranking shorter than k are misses. Below, y_i(j) is 1 if the label at rank j of query i is
relevant, and P_i is the set of its relevant labels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from megalabel.metrics.hits import Hits

__all__ = ["discounted", "hit_rate", "mrr", "ndcg", "precision", "r_precision", "recall", "up_to"]


def precision(hits: Hits, ks: Sequence[int]) -> NDArray[np.float64]:
    """Return ``P@k = mean_i (1/k) sum_{j<=k} y_i(j)``.

    >>> from scipy.sparse import csr_matrix
    >>> from megalabel.metrics import find_hits
    >>> hits = find_hits(np.array([[0, 1, 2]]), csr_matrix([[1, 0, 1, 0]]))
    >>> precision(hits, [1, 2, 3])
    array([1.        , 0.5       , 0.66666667])
    """
    return up_to(hits.rank, None, hits.at(ks)) / (hits.at(ks) * _rows(hits))


def recall(hits: Hits, ks: Sequence[int]) -> NDArray[np.float64]:
    """Return ``R@k = mean_i (1/|P_i|) sum_{j<=k} y_i(j)``."""
    return up_to(hits.rank, 1.0 / hits.relevant[hits.row], hits.at(ks)) / _rows(hits)


def r_precision(hits: Hits, ks: Sequence[int]) -> NDArray[np.float64]:
    """Return ``RP@k = mean_i (1/min(k, |P_i|)) sum_{j<=k} y_i(j)``.

    Unlike P@k it can reach 1 for queries with fewer than k relevant labels (Chalkidis et
    al., "Large-Scale Multi-Label Text Classification on EU Legislation", ACL 2019).
    """
    share = [(1.0 / np.minimum(k, hits.relevant[hits.row]))[hits.rank < k].sum() for k in hits.at(ks)]
    return np.array(share, dtype=np.float64) / _rows(hits)


def ndcg(hits: Hits, ks: Sequence[int]) -> NDArray[np.float64]:
    """Return nDCG@k with binary gain.

    ``nDCG@k = mean_i [sum_{j<=k} y_i(j) / log2(j+1)] / [sum_{j<=min(k,|P_i|)} 1 / log2(j+1)]``
    (Järvelin and Kekäläinen, "Cumulated gain-based evaluation of IR techniques", 2002).
    """
    return discounted(hits.rank, hits.relevant[hits.row], None, hits.at(ks)) / _rows(hits)


def mrr(hits: Hits, ks: Sequence[int]) -> NDArray[np.float64]:
    """Return MRR@k = mean_i 1 / (rank of the first relevant label), 0 if it is not among the k best."""
    first = _first_rank(hits)
    return up_to(first, 1.0 / (first + 1), hits.at(ks)) / _rows(hits)


def hit_rate(hits: Hits, ks: Sequence[int]) -> NDArray[np.float64]:
    """Return hits@k, the share of queries with a relevant label among the k best; 1 - abandonment."""
    return up_to(_first_rank(hits), None, hits.at(ks)) / _rows(hits)


def up_to(rank: NDArray[np.int64], weight: NDArray[np.float64] | None, ks: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return for each k the sum of the weights (1 each when None) whose rank is below k."""
    sums = np.bincount(rank, weight, minlength=int(ks.max(initial=0)))
    return np.cumsum(sums, dtype=np.float64)[ks - 1]


def discounted(
    rank: NDArray[np.int64],
    relevant: NDArray[np.int64],
    weight: NDArray[np.float64] | None,
    ks: NDArray[np.int64],
) -> NDArray[np.float64]:
    """Return for each k the sum over hits of weight / log2(rank + 2), over the ideal DCG of its query.

    The ideal DCG of a query with ``relevant`` labels is sum_{j<=min(k, relevant)} 1 / log2(j+1).
    """
    depth = int(ks.max(initial=0))
    gain = 1.0 / np.log2(np.arange(depth) + 2.0)
    ideal = np.concatenate([[1.0], np.cumsum(gain)])
    inside = rank < depth
    rank, relevant = rank[inside], relevant[inside]
    value = gain[rank] if weight is None else gain[rank] * weight[inside]
    sums = [(value / ideal[np.minimum(k, relevant)])[rank < k].sum() for k in ks]
    return np.array(sums, dtype=np.float64)


def _first_rank(hits: Hits) -> NDArray[np.int64]:
    """Return the best rank of each query that has a hit."""
    start = np.flatnonzero(np.diff(hits.row, prepend=-1))
    return np.minimum.reduceat(hits.rank, start) if len(start) else hits.rank


def _rows(hits: Hits) -> int:
    return max(1, hits.rows)
