"""The part of a batch that one rank computes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from megalabel.types import Targets, View

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["pool_part", "pool_sizes", "shard_view"]


def pool_part(pool: Tensor | None, shard: range) -> slice:
    """Return the slice of an ascending pool whose labels are in ``shard``; None is the pool of all labels."""
    if pool is None:
        return slice(shard.start, shard.stop)
    first, last = torch.searchsorted(pool, torch.tensor([shard.start, shard.stop], device=pool.device)).tolist()
    return slice(first, last)


def pool_sizes(pool: Tensor, labels: Sequence[int]) -> list[int]:
    """Return how many labels of an ascending pool each of several consecutive shards holds, given their sizes.

    >>> pool_sizes(torch.tensor([1, 5, 6]), [4, 0, 4])
    [1, 0, 2]
    """
    ends = torch.searchsorted(pool, torch.tensor([0, *labels], device=pool.device).cumsum(0))
    return [int(size) for size in ends.diff().tolist()]


def shard_view(view: View, shard: range) -> View:
    """Return the view with only those labels of its pool that are in ``shard``, possibly none.

    Labels of the new pool are counted from the first label of ``shard``, like the rows of its tables. A pool of all
    labels stays None. Candidates and their targets are unchanged.

    >>> targets = Targets(torch.tensor([0, 1]), torch.tensor([0, 2]), torch.ones(2), (2, 3))
    >>> part = shard_view(View(targets, pool=torch.tensor([1, 5, 6])), range(4, 8))
    >>> part.pool.tolist(), part.targets.dense().tolist()
    ([1, 2], [[0.0, 0.0], [0.0, 1.0]])
    """
    part = pool_part(view.pool, shard)
    pool = None if view.pool is None else view.pool[part] - shard.start
    if view.candidates is not None:
        return View(view.targets, pool, view.candidates, view.mask)
    targets = view.targets
    local = (targets.cols >= part.start) & (targets.cols < part.stop)
    columns = Targets(
        targets.rows[local],
        targets.cols[local] - part.start,
        targets.values[local],
        (targets.shape[0], part.stop - part.start),
    )
    return View(columns, pool, mask=None if view.mask is None else view.mask[:, part])
