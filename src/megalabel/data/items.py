"""Symmetric sets: which label is the same item as which point."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

from megalabel.data.texts import find_texts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from megalabel.data.dataset import Dataset, Labels, Split

__all__ = ["match_items", "reverse_share"]


def match_items(split: Split, labels: Labels) -> NDArray[np.int64]:
    """Return [N]: the label that is the same item as point i, or -1.

    Points and labels are the same item when they share a uid. Numeric uids are
    ambiguous (point "17" and label "17" may have nothing in common), so shared uids count
    only if most of their texts agree too: one equals the other or is its beginning. If no
    uid is shared, equal texts decide, provided that at least half the points have one.

    >>> from megalabel import Labels, Split
    >>> from scipy.sparse import csr_matrix
    >>> points = Split(["red", "green"], csr_matrix((2, 3)), ["r", "g"])
    >>> match_items(points, Labels(["blue", "green", "red"], ["b", "g", "r"])).tolist()
    [2, 1]
    """
    items = find_texts(split.uids, labels.uids)
    shared = np.flatnonzero(items >= 0)
    if len(shared):
        agreeing = sum(_agree(split.texts[i], labels.texts[items[i]]) for i in shared.tolist())
        return items if 2 * agreeing >= len(shared) else np.full(len(split), -1, dtype=np.int64)
    by_text = find_texts(split.texts, labels.texts)
    if 2 * np.count_nonzero(by_text >= 0) < len(split):
        by_text[:] = -1
    return by_text


def reverse_share(data: Dataset, split: Split) -> float:
    """Return the share of pairs (a, b) of ``split`` for which (b, a) is a train pair.

    High in train and low in test means that a random validation split would break the rule
    that made test. 0 for sets whose points and labels are different things.
    """
    pairs = item_pairs(split, match_items(split, data.labels))
    train = item_pairs(data.train, match_items(data.train, data.labels))
    return pairs.multiply(train.T.tocsr()).nnz / split.targets.nnz if split.targets.nnz else 0.0


def item_pairs(split: Split, items: NDArray[np.int64]) -> sparse.csr_matrix:
    """Return [L, L]: cell (a, b) is 1 where the point that is item a has label b."""
    rows = np.repeat(items, np.diff(split.targets.indptr))
    known = rows >= 0
    size = split.targets.shape[1]
    ones = np.ones(int(known.sum()), dtype=np.float32)
    matrix = sparse.csr_matrix((ones, (rows[known], split.targets.indices[known])), shape=(size, size))
    matrix.data[:] = 1.0
    return matrix


def _agree(first: str, second: str) -> bool:
    return first == second or (bool(first and second) and (first.startswith(second) or second.startswith(first)))
