"""The columns of a batch that one rank works on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from megalabel.types import Targets, View

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["pool_part", "pool_sizes", "shard_view"]


def pool_part(pool: Tensor | None, own: range) -> slice:
    """Return which places of an ascending pool hold labels from ``own``; None is the pool of all labels."""
    if pool is None:
        return slice(own.start, own.stop)
    first, last = torch.searchsorted(pool, torch.tensor([own.start, own.stop], device=pool.device)).tolist()
    return slice(first, last)


def pool_sizes(pool: Tensor, labels: Sequence[int]) -> list[int]:
    """Return how many labels of an ascending pool lie in each of consecutive shards, given the sizes of the shards.

    >>> pool_sizes(torch.tensor([1, 5, 6]), [4, 0, 4])
    [1, 0, 2]
    """
    ends = torch.searchsorted(pool, torch.tensor([0, *labels], device=pool.device).cumsum(0))
    return [int(size) for size in ends.diff().tolist()]


def shard_view(view: View, own: range) -> View:
    """Return the view with those labels of its pool that lie in ``own``, which may be none.

    The labels of the new pool are numbered from the first of ``own``, as their rows are where they lie; a pool of
    all labels stays one. Candidates, with their targets, stay whole.

    >>> targets = Targets(torch.tensor([0, 1]), torch.tensor([0, 2]), torch.ones(2), (2, 3))
    >>> part = shard_view(View(targets, pool=torch.tensor([1, 5, 6])), range(4, 8))
    >>> part.pool.tolist(), part.targets.dense().tolist()
    ([1, 2], [[0.0, 0.0], [0.0, 1.0]])
    """
    part = pool_part(view.pool, own)
    pool = None if view.pool is None else view.pool[part] - own.start
    if view.candidates is not None:
        return View(view.targets, pool, view.candidates, view.mask)
    targets = view.targets
    here = (targets.cols >= part.start) & (targets.cols < part.stop)
    columns = Targets(
        targets.rows[here],
        targets.cols[here] - part.start,
        targets.values[here],
        (targets.shape[0], part.stop - part.start),
    )
    return View(columns, pool, mask=None if view.mask is None else view.mask[:, part])
