"""Two systems on the same test rows: what is kept of each row, and a paired bootstrap of the difference."""

from __future__ import annotations

import base64
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

DRAWS = 1_000
LEVEL = 95.0  # percent


def packed(values: NDArray[np.uint8]) -> str:
    """Return small numbers, one a test row, as text for a file of results.

    >>> unpacked(packed(np.array([3, 0, 31], dtype=np.uint8))).tolist()
    [3, 0, 31]
    """
    return base64.b64encode(np.ascontiguousarray(values, dtype=np.uint8).tobytes()).decode("ascii")


def unpacked(text: str) -> NDArray[np.uint8]:
    """Return what :func:`packed` was given."""
    return np.frombuffer(base64.b64decode(text), dtype=np.uint8)


def hits_of(ids: NDArray[np.integer], targets: object) -> NDArray[np.uint8]:
    """Return [N] the hits among the best five of each row, one bit for each place, the first place the lowest bit.

    >>> from scipy.sparse import csr_matrix
    >>> hits_of(np.array([[0, 2, 1]]), csr_matrix([[1, 1, 0]])).tolist()
    [5]
    """
    result = np.zeros(len(ids), dtype=np.uint8)
    for row, best in enumerate(ids[:, :5]):
        wanted = targets.indices[targets.indptr[row] : targets.indptr[row + 1]]  # type: ignore[attr-defined]
        result[row] = int(np.isin(best, wanted) @ (1 << np.arange(len(best))))
    return result


def precision(hits: NDArray[np.uint8], k: int) -> NDArray[np.float64]:
    """Return [N] P@k of each row in percent, k at most 5.

    >>> precision(np.array([5, 2], dtype=np.uint8), 2).tolist()
    [50.0, 50.0]
    """
    found = np.unpackbits(hits[:, None], axis=1, bitorder="little")[:, :k]
    return 100 * found.mean(axis=1)


def interval(
    better: Sequence[NDArray[np.float64]], worse: Sequence[NDArray[np.float64]], *, seed: int = 0
) -> tuple[float, float]:
    """Return the interval of the mean difference, better - worse, in 95% of draws of the test rows with replacement.

    Both sides have the same test rows; each is a list over seeds, whose means are compared row by row. So the
    interval says what other test rows might have shown, not what other seeds might.

    >>> one = np.array([100.0, 0.0, 100.0, 100.0])
    >>> interval([one], [one])
    (0.0, 0.0)
    """
    difference = np.mean(better, axis=0) - np.mean(worse, axis=0)
    rng = np.random.default_rng(seed)
    draws = [difference[rng.integers(0, len(difference), len(difference))].mean() for _ in range(DRAWS)]
    low, high = np.percentile(draws, [(100 - LEVEL) / 2, (100 + LEVEL) / 2])
    return float(low), float(high)
