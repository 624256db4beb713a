"""Exact search for a few queries over one byte per component: a quarter of the memory to read."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from megalabel.compiled import compiled
from megalabel.index._kernels import INF, cut, product, sort_best

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Coarse"]

_WHOLE = 127  # largest number of a byte with a sign
_SLACK = 2.0**-20  # more than all rounding of float32 numbers here, relative to |q| max|v|


class Coarse:
    r"""Label vectors [L, d] as bytes c with a scale s and a proven error each.

    .. math:: |\langle q, v \rangle - \langle \hat q, s c \rangle| \le |q| |v - s c| + |q - \hat q| |s c|

    where q^ is the query in 16 bits. A scan over the bytes bounds every score from both sides. Whatever is not below
    the k-th largest lower bound is scored exactly, as by :class:`~megalabel.index.ExactIndex`, so the result is the
    same bit for bit.

    Args:
        vectors: [L, d] float32, finite.
        longest: length of the longest.
    """

    def __init__(self, vectors: NDArray[np.float32], longest: float) -> None:
        self.vectors, self.longest = vectors, longest

    @cached_property
    def _codes(self) -> tuple[NDArray[np.int8], NDArray[np.float32], NDArray[np.float32]]:
        """Bytes [L, d], scales [L] and lengths of the errors [L]; made on the first search."""
        shape = self.vectors.shape
        codes, scales, errors = np.empty(shape, np.int8), np.empty(shape[0], np.float32), np.empty(shape[0], np.float32)
        _quantise(self.vectors, codes, scales, errors)
        return codes, scales, errors

    def search(
        self, queries: NDArray[np.float32], k: int, gone: list[NDArray[np.int64]]
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Return scores and ids [Q, k] of the best labels, best first, ties by id; ``gone`` [Q] are left out."""
        scores, ids = np.empty((len(queries), k), dtype=np.float32), np.empty((len(queries), k), dtype=np.int64)
        whole = min(32_767, (2**31 - 1) // (_WHOLE * max(1, queries.shape[1])))  # the sum of products fits in 32 bits
        for place, query in enumerate(queries):
            _scan(*self._codes, self.vectors, query, whole, self.longest, gone[place], scores[place], ids[place])
        return scores, ids


@compiled
def _quantise(
    vectors: NDArray[np.float32],
    codes: NDArray[np.int8],
    scales: NDArray[np.float32],
    errors: NDArray[np.float32],
) -> None:
    """Fill bytes, scales and errors, all rounded so that the bounds hold."""
    for label in range(len(vectors)):
        largest = np.float32(0)
        for at in range(vectors.shape[1]):
            largest = max(largest, abs(vectors[label, at]))
        scale = np.float32(largest / np.float32(_WHOLE))
        scales[label], total = scale, 0.0
        for at in range(vectors.shape[1]):
            code = np.rint(vectors[label, at] / scale) if scale > 0 else 0.0
            code = min(max(code, -127.0), 127.0)
            codes[label, at] = np.int8(code)
            total += (np.float64(vectors[label, at]) - np.float64(scale) * code) ** 2
        errors[label] = np.float32(np.sqrt(total) * (1 + 1e-6))


@compiled
def _scan(
    codes: NDArray[np.int8],
    scales: NDArray[np.float32],
    errors: NDArray[np.float32],
    vectors: NDArray[np.float32],
    query: NDArray[np.float32],
    whole: int,
    longest: float,
    gone: NDArray[np.int64],
    scores: NDArray[np.float32],
    ids: NDArray[np.int64],
) -> None:
    """Fill scores and ids [k] of one query."""
    size, largest, length = len(codes), np.float32(0), 0.0
    for at in range(len(query)):
        largest = max(largest, abs(query[at]))
        length += np.float64(query[at]) ** 2
    length, step, lost = np.sqrt(length), np.float64(largest) / whole, 0.0
    rounded = np.zeros(len(query), dtype=np.int16)
    for at in range(len(query)):
        if step > 0:
            rounded[at] = np.int16(np.rint(query[at] / step))
        lost += (np.float64(query[at]) - step * rounded[at]) ** 2
    rough = np.empty(size, dtype=np.float32)
    for label in range(size):
        total, row = np.int32(0), codes[label]
        for at in range(len(rounded)):
            total += np.int32(np.int32(row[at]) * np.int32(rounded[at]))
        rough[label] = np.float32(step * total * scales[label])
    for place in range(len(gone)):
        rough[gone[place]] = -INF
    fixed = np.float32(2 * np.sqrt(lost) * longest + _SLACK * length * longest)
    reach = np.float32(length * (1 + 1e-6))
    bar = _kth_lower_bound(rough, errors, reach, fixed, len(ids))
    near = 0
    for label in range(size):
        near += rough[label] + reach * errors[label] + fixed >= bar and rough[label] > -INF
    best, held, near = np.empty(near, dtype=np.float32), np.empty(near, dtype=np.int64), 0
    for label in range(size):
        if rough[label] + reach * errors[label] + fixed >= bar and rough[label] > -INF:
            best[near], held[near] = product(vectors[label], query), label
            near += 1
    sort_best(best, held, scores, ids)


@compiled
def _kth_lower_bound(
    rough: NDArray[np.float32], errors: NDArray[np.float32], reach: np.float32, fixed: np.float32, k: int
) -> np.float32:
    """Return the k-th largest of the lower bounds of all scores; -inf if there are not so many."""
    room = min(2 * k + 64, len(rough))
    best, ids, count, bar = np.empty(room, dtype=np.float32), np.empty(room, dtype=np.int64), 0, -INF
    for label in range(len(rough)):
        low = rough[label] - reach * errors[label] - fixed
        if low > bar:
            if count == room:
                bar, count = cut(best, ids, count, k), k
                if low <= bar:
                    continue
            best[count], ids[count] = low, label
            count += 1
    if count < k:
        return -INF
    worst: np.float32 = best[0]
    if count > k:
        worst = cut(best, ids, count, k)
    else:
        for place in range(k):
            worst = min(worst, best[place])
    return worst
