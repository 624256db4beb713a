"""A sparse gradient of a table with every row once."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["distinct_rows"]


def distinct_rows(gradient: Tensor) -> Tensor:
    """Return a gradient that is sparse in the rows with every row once, in ascending order.

    ``coalesce`` sorts and copies whatever is not marked, and torch loses the mark when a gradient becomes
    ``.grad``; rows that ascend already are only looked at, and shared.

    >>> gradient = torch.sparse_coo_tensor(torch.tensor([[0, 2]]), torch.ones(2, 3), (4, 3), check_invariants=True)
    >>> found = distinct_rows(gradient)
    >>> gradient.is_coalesced(), found.is_coalesced(), found.values().data_ptr() == gradient._values().data_ptr()
    (False, True, True)
    """
    if gradient.is_coalesced() or gradient.sparse_dim() != 1:
        return gradient.coalesce()
    indices, values = gradient._indices(), gradient._values()
    if not bool((indices[0, 1:] > indices[0, :-1]).all()):
        return gradient.coalesce()
    return torch.sparse_coo_tensor(
        indices, values, gradient.shape, is_coalesced=True, check_invariants=False, dtype=gradient.dtype
    )
