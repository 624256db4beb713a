"""The candidates of several heads put together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from megalabel.errors import DataError, SettingError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from megalabel.types import TopK

__all__ = ["union"]


def union(*proposals: TopK, k: int | None = None) -> NDArray[np.int64]:
    """Return the labels that any head proposes for each query, each once.

    Args:
        proposals: one ranking per head, of the same Q queries; the widths may differ.
        k: take only the first k of each ranking; all of it when left out.

    Returns:
        [Q, C] label ids, ascending in each row, padded with -1; C is the largest number of
        different labels that a row has.

    >>> from megalabel.types import TopK
    >>> one = TopK(np.array([[7, 2], [5, -1]]), np.zeros((2, 2), dtype=np.float32))
    >>> two = TopK(np.array([[2, 9], [5, -1]]), np.zeros((2, 2), dtype=np.float32))
    >>> union(one, two).tolist()
    [[2, 7, 9], [5, -1, -1]]
    >>> union(one, two, k=1).tolist()
    [[2, 7], [5, -1]]
    """
    if not proposals:
        raise SettingError(
            "there is no ranking to take candidates from", remedy="give the ranking of at least one head"
        )
    if k is not None and k < 1:
        raise SettingError(f"k must be at least 1, not {k}")
    rows = [len(found.ids) for found in proposals]
    if len(set(rows)) > 1:
        raise DataError(f"the heads rank {rows} queries", remedy="give rankings of the same queries")
    padding = np.iinfo(np.int64).max  # sorts behind every label
    ids = np.concatenate([np.asarray(found.ids, dtype=np.int64)[:, :k] for found in proposals], axis=1)
    ids = np.sort(np.where(ids < 0, padding, ids), axis=1)
    ids[:, 1:][ids[:, 1:] == ids[:, :-1]] = padding
    ids.sort(axis=1)
    width = int((ids != padding).sum(axis=1).max(initial=0))
    return np.where(ids == padding, -1, ids)[:, :width]
