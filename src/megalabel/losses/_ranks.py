"""Row state merged over the processes that share the labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch.distributed as dist

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Group:
    """The processes of a torch.distributed group; None is this process alone, where nothing is sent.

    Each rank holds all queries and its own shard of the labels. Every reduction of row
    state goes through one of these three methods, and gives the same on all ranks.
    """

    group: dist.ProcessGroup | None = None

    def sum(self, state: Tensor) -> Tensor:
        """Add up over all ranks."""
        return self._all(state, dist.ReduceOp.SUM)

    def max(self, state: Tensor) -> Tensor:
        """Take the largest over all ranks."""
        return self._all(state, dist.ReduceOp.MAX)

    def gather(self, state: Tensor) -> tuple[list[Tensor], int]:
        """Return every rank's tensor, in rank order, and the place of one's own."""
        if self.group is None:
            return [state], 0
        parts = [state.new_empty(state.shape) for _ in range(dist.get_world_size(self.group))]
        dist.all_gather(parts, state.contiguous(), group=self.group)
        return parts, dist.get_rank(self.group)

    def _all(self, state: Tensor, operation: dist.ReduceOp.RedOpType) -> Tensor:
        if self.group is None:
            return state
        state = state.clone()
        dist.all_reduce(state, op=operation, group=self.group)
        return state


ALONE = Group()
