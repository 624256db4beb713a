"""The columns of a batch that one rank works on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from megalabel.types import Batch, Targets

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["pool_part", "pool_sizes", "shard_batch"]


def pool_part(pool: Tensor | None, own: range) -> slice:
    """Return which places of an ascending pool hold labels from ``own``; None is the pool of all labels."""
    if pool is None:
        return slice(own.start, own.stop)
    first, last = torch.searchsorted(pool, torch.tensor([own.start, own.stop], device=pool.device)).tolist()
    return slice(first, last)


def pool_sizes(pool: Tensor, labels: Sequence[int]) -> list[int]:
    """Return how many labels of an ascending pool lie in each of consecutive shards, given how many labels those have.

    >>> pool_sizes(torch.tensor([1, 5, 6]), [4, 0, 4])
    [1, 0, 2]
    """
    ends = torch.searchsorted(pool, torch.tensor([0, *labels], device=pool.device).cumsum(0))
    return [int(size) for size in ends.diff().tolist()]


def shard_batch(batch: Batch, own: range) -> Batch:
    """Return the batch with all its queries and those labels of its pool that lie in ``own``.

    The labels of the new pool are numbered from the first of ``own``, as their rows are where they lie; a
    pool of all labels stays one. The part may be empty. Candidates, with their targets, stay whole.

    >>> targets = Targets(torch.tensor([0, 1]), torch.tensor([0, 2]), torch.ones(2), (2, 3))
    >>> part = shard_batch(Batch(torch.tensor([7, 8]), targets, pool=torch.tensor([1, 5, 6])), range(4, 8))
    >>> part.pool.tolist(), part.targets.dense().tolist()
    ([1, 2], [[0.0, 0.0], [0.0, 1.0]])
    """
    part = pool_part(batch.pool, own)
    pool = None if batch.pool is None else batch.pool[part] - own.start
    if batch.candidates is not None:
        return Batch(batch.queries, batch.targets, pool, batch.candidates, batch.mask)
    targets = batch.targets
    here = (targets.cols >= part.start) & (targets.cols < part.stop)
    columns = Targets(
        targets.rows[here],
        targets.cols[here] - part.start,
        targets.values[here],
        (targets.shape[0], part.stop - part.start),
    )
    return Batch(batch.queries, columns, pool, mask=None if batch.mask is None else batch.mask[:, part])
