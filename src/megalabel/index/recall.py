"""Recall of an approximate search."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from megalabel.errors import DataError

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix
    from torch import Tensor

    from megalabel.types import Index

__all__ = ["recall"]


def recall(index: Index, exact: Index, queries: Tensor, k: int = 10, *, exclude: csr_matrix | None = None) -> float:
    """Return the share of the k best labels that an index finds, the mean over queries.

    A label counts as found if its score is no worse than that of the k-th best, so labels with
    the same vector are interchangeable.

    Args:
        index: the index to measure.
        exact: an exact index over the same labels.
        queries: [Q, d] typical queries: on others recall may differ a lot.
        k: labels per query.
        exclude: [Q, L] excluded pairs.

    >>> import torch
    >>> from megalabel.index import ExactIndex
    >>> recall(ExactIndex(torch.eye(4)), ExactIndex(torch.eye(4)), torch.eye(4), k=2)
    1.0
    """
    if len(queries) == 0:
        raise DataError("recall needs at least one query")
    best, top = exact.search(queries, k, exclude=exclude), index.search(queries, k, exclude=exclude)
    available = (best.ids >= 0).sum(axis=1)
    worst = np.where(best.ids >= 0, best.scores, np.inf).min(axis=1)
    hits = ((top.ids >= 0) & (top.scores >= worst[:, None])).sum(axis=1)
    return float(np.mean(np.where(available > 0, hits / np.maximum(available, 1), 1.0)))
