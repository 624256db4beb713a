"""An inverted index over sparse rows, compiled by numba, which this file loads."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

from megalabel.compiled import compiled
from megalabel.heads.sparse.heap import push, sort_heap
from megalabel.heads.sparse.in_blocks import in_blocks
from megalabel.types import TopK

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["InvertedIndex", "score"]

_BLOCK = 256  # queries per task
_PROPOSALS = 4  # rows scored with all features, per row to return
_INF = np.float32(np.inf)


class InvertedIndex:
    """Finds the k rows x of a sparse matrix [M, F] with the largest score <query, x> + base.

    Only rows that share a feature with the query are added up, then one scan over all M scores
    selects the best; ties go to the lower row. Scores are float32 sums in ascending order of features.

    Args:
        rows: [M, F] csr, columns sorted.
        base: [M] added to the score of each row; None means 0.
        floor: only rows with a score above it are returned.
        max_df: features in more than this share of the rows are skipped at first: what they add is computed for the
            best 4 k rows by the other features only, and the best k of these returned.
    """

    def __init__(
        self, rows: sparse.csr_matrix, base: NDArray[np.float32] | None, floor: float, max_df: float = 1.0
    ) -> None:
        self.full_rows = None if max_df >= 1 else rows
        if max_df >= 1:
            columns = rows.tocsc()
        else:
            rare = np.bincount(rows.indices, minlength=rows.shape[1]) <= max_df * rows.shape[0]
            columns = _cells(rows, rare[rows.indices]).tocsc()
            frequent = _cells(rows, ~rare[rows.indices])
            self.frequent = np.flatnonzero(~rare)  # features
            places = np.searchsorted(self.frequent, frequent.indices).astype(np.int32)  # of each among them
            self.frequent_cells = frequent.indptr, places, frequent.data
        self.shape = rows.shape
        self.indptr, self.rows, self.values = columns.indptr.astype(np.int64), columns.indices, columns.data
        self.base = np.zeros(rows.shape[0], dtype=np.float32) if base is None else base
        self.floor = np.float32(floor)

    def matrix(self) -> sparse.csr_matrix:
        """Return the rows [M, F] of the constructor."""
        if self.full_rows is not None:
            return self.full_rows
        return sparse.csc_matrix((self.values, self.rows, self.indptr), shape=self.shape).tocsr()

    def without(self, removed: NDArray[np.int64]) -> InvertedIndex:
        """Return an index that never returns these rows and shares everything else with this one."""
        smaller = copy(self)
        smaller.base = self.base.copy()
        smaller.base[removed] = -_INF
        return smaller

    def search(
        self, queries: sparse.csr_matrix, k: int, exclude: sparse.csr_matrix | None = None, what: str = "searching"
    ) -> TopK:
        """Return the k best rows of each query [Q, F]; stored cells of ``exclude`` [Q, M] are left out."""
        if self.full_rows is None:
            return self._propose(queries, k, exclude, what)
        proposed = self._propose(queries, _PROPOSALS * k, exclude, what)
        query = queries.indptr, queries.indices, queries.data
        _complete(query, self.frequent, self.frequent_cells, proposed.ids, proposed.scores)
        best = np.lexsort((proposed.ids, -proposed.scores), axis=1)[:, :k]
        return TopK(np.take_along_axis(proposed.ids, best, axis=1), np.take_along_axis(proposed.scores, best, axis=1))

    def scores(self, queries: sparse.csr_matrix, candidates: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the scores [Q, C] of candidate rows, bit for bit those of the search; candidate -1 has -inf.

        Computes the scores of all M rows and picks the candidates: with hundreds of candidates
        that is far less work than going through the features of each.
        """
        if self.full_rows is not None:
            return score(queries, self.full_rows, self.base, candidates)
        scores = np.empty(candidates.shape, dtype=np.float32)

        def work(start: int, stop: int) -> None:
            _pick(
                start, stop, queries.indptr, queries.indices, queries.data, self.indptr, self.rows, self.values,
                self.base, candidates, scores,
            )  # fmt: skip

        in_blocks(work, len(candidates), _BLOCK, "scoring", unit="queries")
        return scores

    def _propose(self, queries: sparse.csr_matrix, k: int, exclude: sparse.csr_matrix | None, what: str) -> TopK:
        ids = np.full((queries.shape[0], k), -1, dtype=np.int64)
        scores = np.full((queries.shape[0], k), -_INF, dtype=np.float32)
        none = np.zeros(queries.shape[0] + 1, dtype=np.int32), np.empty(0, dtype=np.int32)
        out = none if exclude is None else (exclude.indptr, exclude.indices)

        def work(start: int, stop: int) -> None:
            _search(
                start, stop, queries.indptr, queries.indices, queries.data, self.indptr, self.rows, self.values,
                self.base, self.floor, *out, ids, scores,
            )  # fmt: skip

        in_blocks(work, queries.shape[0], _BLOCK, what, unit="queries")
        return TopK(ids, scores)


def _cells(rows: sparse.csr_matrix, keep: NDArray[np.bool_]) -> sparse.csr_matrix:
    """Return the rows with some of their cells."""
    indptr = np.concatenate([[0], np.cumsum(keep)])[rows.indptr]
    return sparse.csr_matrix((rows.data[keep], rows.indices[keep], indptr), shape=rows.shape)


def score(
    queries: sparse.csr_matrix, rows: sparse.csr_matrix, base: NDArray[np.float32], candidates: NDArray[np.int64]
) -> NDArray[np.float32]:
    """Return the scores [Q, C] of candidate rows, bit for bit those of the search; candidate -1 has -inf."""
    scores = np.empty(candidates.shape, dtype=np.float32)
    query, row = (queries.indptr, queries.indices, queries.data), (rows.indptr, rows.indices, rows.data)

    def work(start: int, stop: int) -> None:
        _score(start, stop, query, row, base, candidates, scores)

    in_blocks(work, len(candidates), _BLOCK, "scoring", unit="queries")
    return scores


@compiled
def _score(
    start: int,
    stop: int,
    queries: tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float32]],
    rows: tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float32]],
    base: NDArray[np.float32],
    candidates: NDArray[np.int64],
    scores: NDArray[np.float32],
) -> None:
    """Fill rows ``start`` to ``stop`` of the scores [Q, C] of candidate rows, in the summation order of the search."""
    longest = 1
    for query in range(start, stop):
        longest = max(longest, queries[0][query + 1] - queries[0][query])
    size = 8
    while size < 4 * longest:
        size *= 2
    table = np.empty(size, dtype=np.int64)  # where a feature of the query is, by its hash; small enough for the cache
    for query in range(start, stop):
        table[:] = -1
        for place in range(queries[0][query], queries[0][query + 1]):
            slot = _slot(queries[1][place], size)
            while table[slot] >= 0:
                slot = (slot + 1) & (size - 1)
            table[slot] = place
        for place in range(candidates.shape[1]):
            row = candidates[query, place]
            scores[query, place] = -_INF if row < 0 else _product(rows, row, base[row], queries, table)


@compiled
def _product(
    rows: tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float32]],
    row: int,
    total: np.float32,
    queries: tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float32]],
    table: NDArray[np.int64],
) -> np.float32:
    """Return the product of a row and the query whose features are in the table, added to ``total``."""
    for place in range(rows[0][row], rows[0][row + 1]):
        slot = _slot(rows[1][place], len(table))
        while table[slot] >= 0:
            if queries[1][table[slot]] == rows[1][place]:
                total += queries[2][table[slot]] * rows[2][place]
                break
            slot = (slot + 1) & (len(table) - 1)
    return total


@compiled
def _slot(feature: int, size: int) -> int:
    """Return the first place to look for a feature in a table of so many slots, a power of two."""
    return ((feature * 2_654_435_761) >> 15) & (size - 1)


@compiled
def _complete(
    queries: tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float32]],
    frequent: NDArray[np.int64],
    rows: tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float32]],
    ids: NDArray[np.int64],
    scores: NDArray[np.float32],
) -> None:
    """Add what the ``frequent`` features of each query contribute to the scores [Q, C] of rows; id -1 is none."""
    weights = np.zeros(len(frequent), dtype=np.float32)
    for query in range(len(ids)):
        weights[:] = 0
        feature = 0
        for place in range(queries[0][query], queries[0][query + 1]):  # both are ascending
            while feature < len(frequent) and frequent[feature] < queries[1][place]:
                feature += 1
            if feature < len(frequent) and frequent[feature] == queries[1][place]:
                weights[feature] = queries[2][place]
        for place in range(ids.shape[1]):
            row = ids[query, place]
            if row >= 0:
                total = scores[query, place]
                for cell in range(rows[0][row], rows[0][row + 1]):
                    total += weights[rows[1][cell]] * rows[2][cell]
                scores[query, place] = total


@compiled
def _search(
    start: int,
    stop: int,
    indptr: NDArray[np.int32],
    features: NDArray[np.int32],
    weights: NDArray[np.float32],
    starts: NDArray[np.int64],
    rows: NDArray[np.int32],
    values: NDArray[np.float32],
    base: NDArray[np.float32],
    floor: np.float32,
    out_indptr: NDArray[np.int32],
    out_rows: NDArray[np.int32],
    ids: NDArray[np.int64],
    scores: NDArray[np.float32],
) -> None:
    """Fill rows ``start`` to ``stop`` of ids and scores."""
    sums = np.empty(len(base), dtype=np.float32)
    for query in range(start, stop):
        sums[:] = base
        _add_up(indptr[query], indptr[query + 1], features, weights, starts, rows, values, sums)
        for place in range(out_indptr[query], out_indptr[query + 1]):
            sums[out_rows[place]] = -_INF
        _select(sums, floor, ids[query], scores[query])


@compiled
def _pick(
    start: int,
    stop: int,
    indptr: NDArray[np.int32],
    features: NDArray[np.int32],
    weights: NDArray[np.float32],
    starts: NDArray[np.int64],
    rows: NDArray[np.int32],
    values: NDArray[np.float32],
    base: NDArray[np.float32],
    candidates: NDArray[np.int64],
    scores: NDArray[np.float32],
) -> None:
    """Fill rows ``start`` to ``stop`` of the scores [Q, C] of candidate rows."""
    sums = np.empty(len(base), dtype=np.float32)
    for query in range(start, stop):
        sums[:] = base
        _add_up(indptr[query], indptr[query + 1], features, weights, starts, rows, values, sums)
        for place in range(candidates.shape[1]):
            row = candidates[query, place]
            scores[query, place] = -_INF if row < 0 else sums[row]


@compiled
def _add_up(
    first: int,
    last: int,
    features: NDArray[np.int32],
    weights: NDArray[np.float32],
    starts: NDArray[np.int64],
    rows: NDArray[np.int32],
    values: NDArray[np.float32],
    sums: NDArray[np.float32],
) -> None:
    """Add the products of the features ``first`` to ``last`` of one query to the sums [M] of all rows."""
    for place in range(first, last):
        weight = weights[place]
        for cell in range(starts[features[place]], starts[features[place] + 1]):
            sums[rows[cell]] += weight * values[cell]


@compiled
def _select(sums: NDArray[np.float32], floor: np.float32, ids: NDArray[np.int64], scores: NDArray[np.float32]) -> None:
    """Fill ids and scores [k] with the largest sums above the floor, best first, ties by ascending id."""
    size, bar = 0, floor  # a sum must be above the bar: the worst of the k best so far
    for row in range(len(sums)):
        if sums[row] > bar:
            size = push(ids, scores, size, row, sums[row])
            if size == len(ids):
                bar = scores[0]
    sort_heap(ids, scores, size)
