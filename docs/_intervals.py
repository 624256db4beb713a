"""Paired bootstrap of two systems over the same test rows, from what benchmarks/_paired.py kept of each row."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

DRAWS = 1_000
OUTSIDE = (2.5, 97.5)  # percent


def unpacked(text: str) -> NDArray[np.uint8]:
    """Return small numbers, one a test row.

    >>> unpacked("AwAf").tolist()
    [3, 0, 31]
    """
    return np.frombuffer(base64.b64decode(text), dtype=np.uint8)


def precision(hits: NDArray[np.uint8], k: int) -> NDArray[np.float64]:
    """Return [N] P@k of each row in percent, k at most 5; bit i of a row says whether its place i + 1 is a hit.

    >>> precision(np.array([5, 2], dtype=np.uint8), 2).tolist()
    [50.0, 50.0]
    """
    found = np.unpackbits(hits[:, None], axis=1, bitorder="little")[:, :k]
    return np.asarray(100 * found.mean(axis=1))


def interval(better: Sequence[NDArray[Any]], worse: Sequence[NDArray[Any]], *, seed: int = 0) -> tuple[float, float]:
    """Return the interval of the mean difference, better - worse, in 95% of draws of the test rows with replacement.

    Both sides have the same test rows; each is a list over seeds, whose means are compared row by row. So the interval
    says what other test rows might have shown, not what other seeds might.

    >>> one = np.array([100.0, 0.0, 100.0, 100.0])
    >>> interval([one], [one])
    (0.0, 0.0)
    """
    difference = np.mean(better, axis=0) - np.mean(worse, axis=0)
    rng = np.random.default_rng(seed)
    draws = [difference[rng.integers(0, len(difference), len(difference))].mean() for _ in range(DRAWS)]
    low, high = np.percentile(draws, OUTSIDE)
    return float(low), float(high)


def of_first_place(better: Sequence[dict[str, Any]], worse: Sequence[dict[str, Any]]) -> tuple[float, float]:
    """Return the interval of P@1 of some rows of a study over others, seeds averaged."""
    sides = [[precision(unpacked(row["hits"]), 1) for row in side] for side in (better, worse)]
    return interval(*sides)


def of_complete(better: Sequence[dict[str, Any]], worse: Sequence[dict[str, Any]], k: int) -> tuple[float, float]:
    """Return the interval of the share of questions with all of their 2 to k documents in the top k."""
    sides = []
    for side in (better, worse):
        counts = unpacked(side[0]["documents"])
        asked = (counts >= 2) & (counts <= k)
        ranks = [unpacked(row["needed"])[asked] for row in side]
        sides.append([100.0 * ((rank > 0) & (rank <= k)) for rank in ranks])
    return interval(*sides)
