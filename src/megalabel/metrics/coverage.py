"""Measure per label rather than per query: coverage and the macro averages."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from megalabel.metrics.hits import blocks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from megalabel.metrics.hits import Hits

__all__ = ["Macro", "coverage", "macro"]

_CELLS = 1 << 21  # cells counted at once, 16 MiB: each block costs one array of L counts


class Macro(NamedTuple):
    """Macro averages, one value per k each."""

    precision: NDArray[np.float64]
    recall: NDArray[np.float64]
    f1: NDArray[np.float64]


def coverage(hits: Hits, ks: Sequence[int]) -> NDArray[np.float64]:
    """Return coverage@k, the share of relevant labels that are a hit for at least one query.

    ``coverage@k = |{l : l in P_i and in the k best of i, for some i}| / |{l : l in P_i for some i}|``

    >>> from scipy.sparse import csr_matrix
    >>> from megalabel.metrics import find_hits
    >>> hits = find_hits(np.array([[0, 1], [3, 0]]), csr_matrix([[1, 1, 0, 0], [1, 0, 1, 0]]))
    >>> coverage(hits, [1, 2]).round(4)
    array([0.3333, 0.6667])
    """
    best = np.full(hits.labels, hits.max_k, dtype=np.int64)
    np.minimum.at(best, hits.label, hits.rank)
    relevant = int(np.count_nonzero(np.bincount(hits.truth.indices, minlength=hits.labels)))
    covered = np.array([np.count_nonzero(best < k) for k in hits.at(ks)], dtype=np.float64)
    return covered / max(1, relevant)


def macro(hits: Hits, ks: Sequence[int]) -> Macro:
    """Return precision, recall and F1 per label at k, each averaged over all L labels.

    With tp, fp, fn of label l counted over the k best of every query: precision tp / (tp + fp), recall
    tp / (tp + fn), F1 2 tp / (2 tp + fp + fn). Where a denominator is 0 the label counts 0, so a label that
    never occurs in truth or rankings still takes part. (napkinXC stops at the highest label id that occurs.)
    """
    relevant = np.bincount(hits.truth.indices, minlength=hits.labels).astype(np.float64)
    guessed = np.zeros(hits.labels)
    done = 0
    rows = []
    ordered = hits.at(ks)
    for k in np.unique(ordered):
        guessed += _occurrences(hits, done, int(k))
        done = int(k)
        right = np.bincount(hits.label[hits.rank < k], minlength=hits.labels).astype(np.float64)
        parts = (
            right / np.maximum(guessed, 1),
            right / np.maximum(relevant, 1),
            2 * right / np.maximum(guessed + relevant, 1),
        )
        rows.append([part.sum() / max(1, hits.labels) for part in parts])
    table = np.array(rows, dtype=np.float64).reshape(-1, 3)[np.searchsorted(np.unique(ordered), ordered)]
    return Macro(table[:, 0], table[:, 1], table[:, 2])


def _occurrences(hits: Hits, start: int, stop: int) -> NDArray[np.int64]:
    """Count how often each label has a rank from start to stop - 1."""
    counts = np.zeros(hits.labels, dtype=np.int64)
    for _, block in blocks(hits.ids[:, start:stop], _CELLS):
        flat = block.ravel()
        counts += np.bincount(flat[flat >= 0], minlength=hits.labels)
    return counts
