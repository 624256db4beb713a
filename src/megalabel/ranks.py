"""The processes that train together: each has its own labels and its own share of the texts."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from megalabel import errors
from megalabel.errors import DataError, MegalabelError, SettingError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch._C._distributed_c10d import Store

__all__ = ["ALONE", "Ranks"]

Result = TypeVar("Result")

_POLL_SECONDS = 0.05  # between two checks for a message of rank 0, in the first second
_POLL_SECONDS_LATER = 0.5


@dataclass(frozen=True)
class Ranks:
    """One of ``world`` processes started by ``torchrun``; with one process, every method returns its argument.

    All ranks run the same program on the same data with the same seeds, so they agree on every batch
    without communication. They exchange query vectors, row state of losses, gradients of shared
    parameters, and a few numbers to check that they agree. Labels are cut into contiguous shards; only
    the owner of a label holds its free vector, bias and optimiser state.

    Args:
        rank: number of this process.
        world: number of processes.
        group: process group; None for a single process.
        store: key-value store for messages between ranks; None for a single process.
        local: number of this process on its machine, and of its GPU.

    >>> Ranks(rank=1, world=3).share(10), Ranks(rank=1, world=3).sizes(10)
    (range(3, 6), [3, 3, 4])
    """

    rank: int = 0
    world: int = 1
    group: dist.ProcessGroup | None = field(default=None, repr=False)
    store: Store | None = field(default=None, repr=False)
    local: int = 0
    _numbers: Iterator[int] = field(default_factory=count, repr=False, compare=False)

    @classmethod
    def of_group(cls, group: dist.ProcessGroup | None) -> Ranks:
        """Return the ranks of a torch.distributed group; None is this process alone."""
        return ALONE if group is None else cls(dist.get_rank(group), dist.get_world_size(group), group)

    @property
    def alone(self) -> bool:
        """Whether there is no other process."""
        return self.world == 1

    @property
    def first(self) -> bool:
        """Whether this is rank 0, which writes files and prints."""
        return self.rank == 0

    @property
    def command(self) -> list[str]:
        """Start of the command line that starts the same number of processes."""
        if self.alone:
            return ["megalabel"]
        per_node = os.environ.get("LOCAL_WORLD_SIZE", str(self.world))
        nodes = [] if per_node == str(self.world) else [f"--nnodes={self.world // int(per_node)}"]
        return ["torchrun", *nodes, f"--nproc-per-node={per_node}", "-m", "megalabel"]

    def device(self, name: str) -> str:
        """Return the device of this rank: either each has its own GPU or none has; a single process takes any."""
        if self.alone or name == "cpu" or (name == "auto" and not torch.cuda.is_available()):
            return name
        if name not in ("auto", "cuda"):
            raise SettingError(f"several ranks cannot share the device {name!r}", remedy="choose auto, cpu or cuda")
        if 0 < torch.cuda.device_count() <= self.local:
            what = f"local rank {self.local} has no GPU, this machine has {torch.cuda.device_count()}"
            raise SettingError(what, remedy="start one rank per GPU, or choose the device cpu")
        return f"cuda:{self.local}"

    def share(self, total: int) -> range:
        """Return this rank's contiguous part of ``range(total)``; parts differ in length by at most one."""
        return range(self.rank * total // self.world, (self.rank + 1) * total // self.world)

    def sizes(self, total: int) -> list[int]:
        """Return the length of each rank's share."""
        return [(rank + 1) * total // self.world - rank * total // self.world for rank in range(self.world)]

    def gather(self, part: Tensor, sizes: Sequence[int]) -> Tensor:
        """Return the rows of all ranks, in rank order; this rank has ``part`` [sizes[rank], ...]."""
        if self.alone:
            return part
        padded = part.new_zeros(max(sizes), *part.shape[1:])
        padded[: len(part)] = part.detach()
        parts = [torch.empty_like(padded) for _ in sizes]
        dist.all_gather(parts, padded, group=self.group)
        return torch.cat([rows[:size] for rows, size in zip(parts, sizes, strict=True)])

    def gather_with_gradient(self, part: Tensor, sizes: Sequence[int], *, summed: bool = False) -> Tensor:
        """Return what :meth:`gather` returns, differentiable on every rank, so that all take part in each reduction.

        Backward gives each rank the gradient of its own rows: with ``summed`` the sum of the gradients of all
        ranks; without it the gradient of this rank, for a value whose gradient is already complete on every rank
        (a loss whose row state is reduced).
        """
        if self.alone:
            return part
        if torch.is_grad_enabled() and not part.requires_grad:
            part = part.detach().requires_grad_()
        rows: Tensor = _Gathered.apply(part, self, list(sizes), summed)  # type: ignore[no-untyped-call]
        return rows

    def grad_on_rank0(self, value: Tensor) -> Tensor:
        """Return the value; every rank computes its whole gradient, and only that of rank 0 is used."""
        if self.alone or not value.requires_grad:
            return value
        value = _GradOnRank0.apply(value, self)  # type: ignore[no-untyped-call]
        return value

    def sum(self, value: Tensor) -> Tensor:
        """Return the sum over all ranks; leaves the value itself unchanged."""
        return self._reduce(value, dist.ReduceOp.SUM)

    def max(self, value: Tensor) -> Tensor:
        """Return the element-wise maximum over all ranks; leaves the value itself unchanged."""
        return self._reduce(value, dist.ReduceOp.MAX)

    def max_int(self, *numbers: int) -> list[int]:
        """Return the maximum over all ranks of each integer or bool."""
        largest = self.max(torch.tensor([int(number) for number in numbers], dtype=torch.int64))
        return [int(number) for number in largest.tolist()]

    def same(self, what: str, value: bytes) -> None:
        """Raise a DataError on every rank unless all have the same bytes."""
        if self.alone:
            return
        digest = np.frombuffer(blake2b(value, digest_size=16).digest(), dtype=np.int64).copy()
        digests = self.gather(torch.from_numpy(digest).unsqueeze(0), [1] * self.world)
        different = (digests != digests[:1]).any(dim=1).nonzero()
        if len(different):
            raise DataError(
                f"rank {int(different[0])} of {self.world} does not have the same {what} as rank 0",
                remedy="start every rank with the same command, on the same files, with the same release",
            )

    def broadcast(self, compute: Callable[[], Result]) -> Result:
        """Call ``compute`` on rank 0 while the others wait without a time limit; all ranks return its result.

        The result must be JSON-serialisable. A :class:`MegalabelError` on rank 0 is raised on all ranks.
        """
        if self.store is None:
            return compute()
        key = f"broadcast-{next(self._numbers)}"
        if self.first:
            try:
                result = compute()
            except MegalabelError as error:
                self.store.set(key, json.dumps({"kind": type(error).__name__, "line": str(error)}))
                raise
            self.store.set(key, json.dumps({"result": result}))
            return result
        start = time.monotonic()
        while not self.store.check([key]):
            time.sleep(_POLL_SECONDS if time.monotonic() - start < 1 else _POLL_SECONDS_LATER)
        message = json.loads(self.store.get(key))
        if "kind" in message:
            raise getattr(errors, message["kind"], MegalabelError)(message["line"])
        return message["result"]  # type: ignore[no-any-return]

    def rank0_first(self, compute: Callable[[], Result]) -> Result:
        """Call ``compute`` on rank 0, then on the others, which can use what rank 0 left in a cache."""
        result = self.on_rank0(compute)
        return compute() if result is None else result

    def on_rank0(self, compute: Callable[[], Result]) -> Result | None:
        """Call ``compute`` on rank 0 while the others wait without a time limit; the others return None."""
        results: list[Result] = []
        self.broadcast(lambda: results.append(compute()) if self.first else None)
        return results[0] if results else None

    def _reduce(self, value: Tensor, operation: dist.ReduceOp.RedOpType) -> Tensor:
        if self.alone:
            return value
        value = value.detach().clone()
        dist.all_reduce(value, op=operation, group=self.group)
        return value


class _Gathered(Function):
    @staticmethod
    def forward(ctx: Any, part: Tensor, ranks: Ranks, sizes: list[int], summed: bool) -> Tensor:
        ctx.ranks, ctx.sizes, ctx.summed = ranks, sizes, summed
        return ranks.gather(part, sizes)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        ranks, sizes = ctx.ranks, ctx.sizes
        if ctx.summed:
            gradient = ranks.sum(gradient)
        start = sum(sizes[: ranks.rank])
        return gradient[start : start + sizes[ranks.rank]], None, None, None


class _GradOnRank0(Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor, ranks: Ranks) -> Tensor:
        ctx.first = ranks.first
        return value.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient if ctx.first else torch.zeros_like(gradient), None


ALONE = Ranks()
