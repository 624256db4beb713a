"""How often a target of a label text is true, learnt where the truth is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Calibration", "isotonic"]

PAIRS = 100  # known pairs from which the curve of a range of points is learnt, at least


def isotonic(x: NDArray[np.floating], y: NDArray[np.floating]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the distinct values of x, sorted, and the non-decreasing f that is nearest to y there.

    f minimises sum_k (y_k - f(x_k))^2 among all functions that never fall: neighbours in the wrong order are
    merged into their mean until none is left (pool adjacent violators, Ayer et al. 1955).

    Args:
        x: [n] at least one.
        y: [n].

    >>> [part.tolist() for part in isotonic(np.array([0.1, 0.5, 0.5, 0.9]), np.array([1.0, 0.0, 0.0, 1.0]))]
    [[0.1, 0.5, 0.9], [0.3333333333333333, 0.3333333333333333, 1.0]]
    """
    distinct, place = np.unique(np.asarray(x, dtype=np.float64), return_inverse=True)
    weights = np.bincount(place.ravel()).tolist()
    sums = np.bincount(place.ravel(), weights=y).tolist()
    blocks: list[list[float]] = []  # sum, weight, values of x
    for total, weight in zip(sums, weights, strict=True):
        blocks.append([total, weight, 1])
        while len(blocks) > 1 and blocks[-2][0] * blocks[-1][1] >= blocks[-1][0] * blocks[-2][1]:
            last = blocks.pop()
            blocks[-1] = [one + other for one, other in zip(blocks[-1], last, strict=True)]
    means = [total / weight for total, weight, _ in blocks]
    return distinct, np.repeat(means, [int(size) for _, _, size in blocks])


@dataclass(frozen=True)
class Calibration:
    r"""Estimate P(label i is true of label text j | c_ij, n_j) from texts whose labels are known.

    c_ij is the share of the points of label j that also have label i, n_j the number of these points. The same c
    says more if it rests on more points: of a label with one point, every label of that point has c = 1.

    .. math::
        p(c, n) = f_{b(n)}(c), \qquad
        f_b = \arg\min_{f \text{ non-decreasing}} \sum_{(i, j): b(n_j) = b} (t_{ij} - f(c_{ij}))^2

    with t = 1 if the train rows of text j have label i, else 0. b are ranges of n: 1, 2 to 3, 4 to 7, and so on, each
    joined with the next until it has :data:`PAIRS` known pairs; what remains joins the last. Between known values of c,
    f is linear, outside them constant. p is not forced to grow with n: beyond some points, frequent
    labels are no more reliable than others.

    Args:
        c: [n] graph targets of known pairs.
        points: [n] points of the label whose text it is.
        true: [n] bool.

    >>> c, points = np.array([1.0, 1.0, 1.0, 1.0] * 100), np.array([1, 1, 1, 4] * 100)
    >>> calibration = Calibration.fit(c, points, np.array([True, False, False, True] * 100))
    >>> calibration(np.array([1.0, 1.0]), np.array([1, 9])).round(2).tolist()
    [0.33, 1.0]
    """

    starts: NDArray[np.int64]  # [b] fewest points of each range
    curves: tuple[tuple[NDArray[np.float64], NDArray[np.float64]], ...]  # [b] of c and p

    @classmethod
    def fit(cls, c: NDArray[np.floating], points: NDArray[np.integer], true: NDArray[np.bool_]) -> Calibration:
        """Return the curves; at least one pair."""
        octave = _octave(points)
        counts = np.bincount(octave)
        starts, pairs = [0], 0
        for place, count in enumerate(counts.tolist()):
            if pairs >= PAIRS and counts[place:].sum() >= PAIRS:
                starts, pairs = [*starts, place], 0
            pairs += count
        ranges = np.searchsorted(starts, octave, side="right") - 1
        values = true.astype(np.float64)
        curves = tuple(isotonic(c[ranges == one], values[ranges == one]) for one in range(len(starts)))
        return cls(2 ** np.asarray(starts, dtype=np.int64), curves)

    def __call__(self, c: NDArray[np.floating], points: NDArray[np.integer]) -> NDArray[np.float64]:
        """Return p(c, n) [n]."""
        ranges = np.searchsorted(self.starts, np.maximum(points, 1), side="right") - 1
        result = np.empty(len(c), dtype=np.float64)
        for one, (known, value) in enumerate(self.curves):
            here = ranges == one
            result[here] = np.interp(c[here], known, value)
        return result


def _octave(points: NDArray[np.integer]) -> NDArray[np.int64]:
    """Return floor(log2(n)), exactly.

    >>> _octave(np.array([1, 2, 3, 4, 7, 8, 2**40 - 1])).tolist()
    [0, 1, 1, 2, 2, 3, 39]
    """
    exponents: NDArray[np.int64] = np.frexp(np.maximum(points, 1).astype(np.float64))[1].astype(np.int64)
    return exponents - 1
