"""The processes that train together: each has its own labels, its own share of the texts, and all else in common."""

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

Made = TypeVar("Made")

_LOOK_SECONDS = 0.05  # between two looks at whether the first rank has spoken, at the start
_LOOK_SECONDS_LATER = 0.5


@dataclass(frozen=True)
class Ranks:
    """One of ``world`` processes started by ``torchrun``; alone, every method gives back what it got.

    All ranks run the same program on the same data with the same seeds, so that they agree on every
    batch without a word. What is exchanged are vectors of queries, row state of losses, gradients
    of what all of them hold, and a few numbers to be sure. Labels are cut into contiguous shards;
    free vectors, biases and their optimiser state are with their owner and nowhere else.

    Args:
        rank: the number of this process.
        world: how many there are.
        group: the process group; None alone.
        store: where ranks leave messages for each other; None alone.
        local: the number of this process on its machine, and of its GPU.

    >>> Ranks(rank=1, world=3).share(10), Ranks(rank=1, world=3).sizes(10)
    (range(3, 6), [3, 3, 4])
    """

    rank: int = 0
    world: int = 1
    group: dist.ProcessGroup | None = field(default=None, repr=False)
    store: Store | None = field(default=None, repr=False)
    local: int = 0
    _numbers: Iterator[int] = field(default_factory=count, repr=False, compare=False)

    @property
    def alone(self) -> bool:
        """Whether there is no other process."""
        return self.world == 1

    @property
    def first(self) -> bool:
        """Whether this is the rank that writes files and speaks to the user."""
        return self.rank == 0

    @property
    def command(self) -> list[str]:
        """The words that start as many processes as there are now, before those of a command."""
        if self.alone:
            return ["megalabel"]
        here = os.environ.get("LOCAL_WORLD_SIZE", str(self.world))
        nodes = [] if here == str(self.world) else [f"--nnodes={self.world // int(here)}"]
        return ["torchrun", *nodes, f"--nproc-per-node={here}", "-m", "megalabel"]

    def device(self, name: str) -> str:
        """Return the name of this rank's own device: each has a GPU of its own, or none has; alone, any will do."""
        if self.alone or name == "cpu" or (name == "auto" and not torch.cuda.is_available()):
            return name
        if name not in ("auto", "cuda"):
            raise SettingError(f"several ranks cannot share the device {name!r}", remedy="choose auto, cpu or cuda")
        if 0 < torch.cuda.device_count() <= self.local:
            what = f"local rank {self.local} has no GPU, this machine has {torch.cuda.device_count()}"
            raise SettingError(what, remedy="start as many ranks as GPUs, or choose the device cpu")
        return f"cuda:{self.local}"

    def share(self, total: int) -> range:
        """Return this rank's part of 0 to ``total``: contiguous, and as long as any other's but for one."""
        return range(self.rank * total // self.world, (self.rank + 1) * total // self.world)

    def sizes(self, total: int) -> list[int]:
        """Return how long the share of each rank is."""
        return [(rank + 1) * total // self.world - rank * total // self.world for rank in range(self.world)]

    def gather(self, part: Tensor, sizes: Sequence[int]) -> Tensor:
        """Return the rows of all ranks, in rank order, of which this one has ``part`` [sizes[rank], ...]."""
        if self.alone:
            return part
        padded = part.new_zeros(max(sizes), *part.shape[1:])
        padded[: len(part)] = part.detach()
        found = [torch.empty_like(padded) for _ in sizes]
        dist.all_gather(found, padded, group=self.group)
        return torch.cat([rows[:size] for rows, size in zip(found, sizes, strict=True)])

    def gather_with_gradient(self, part: Tensor, sizes: Sequence[int], *, summed: bool = False) -> Tensor:
        """Return the same, differentiable on every rank alike, so that none leaves a reduction out.

        Backward gives each rank the gradient of its own rows: with ``summed`` the sum of what the ranks
        found, without what this rank found, for what is whole on every rank already (a loss whose row
        state is reduced).
        """
        if self.alone:
            return part
        if torch.is_grad_enabled() and not part.requires_grad:
            part = part.detach().requires_grad_()
        found: Tensor = _Gathered.apply(part, self, list(sizes), summed)  # type: ignore[no-untyped-call]
        return found

    def grad_on_rank0(self, value: Tensor) -> Tensor:
        """Return the value; of its gradient, which every rank finds whole, only the first rank's counts."""
        if self.alone or not value.requires_grad:
            return value
        found: Tensor = _GradOnRank0.apply(value, self)  # type: ignore[no-untyped-call]
        return found

    def sum(self, value: Tensor) -> Tensor:
        """Return the sum over all ranks; the value itself is left as it is."""
        if self.alone:
            return value
        value = value.detach().clone()
        dist.all_reduce(value, group=self.group)
        return value

    def max_int(self, *numbers: int) -> list[int]:
        """Return each whole number, or truth, as the rank has it where it is largest."""
        if self.alone:
            return [int(number) for number in numbers]
        found = torch.tensor([int(number) for number in numbers], dtype=torch.int64)
        dist.all_reduce(found, op=dist.ReduceOp.MAX, group=self.group)
        return [int(number) for number in found.tolist()]

    def same(self, what: str, value: bytes) -> None:
        """Raise a DataError on every rank unless all have the same bytes."""
        if self.alone:
            return
        own = np.frombuffer(blake2b(value, digest_size=16).digest(), dtype=np.int64).copy()
        found = self.gather(torch.from_numpy(own).unsqueeze(0), [1] * self.world)
        other = (found != found[:1]).any(dim=1).nonzero()
        if len(other):
            raise DataError(
                f"rank {int(other[0])} of {self.world} does not have the same {what} as rank 0",
                remedy="start every rank with the same command, on the same files, with the same release",
            )

    def broadcast(self, make: Callable[[], Made]) -> Made:
        """Let the first rank make something while the others wait, however long; all return it.

        What is made must be JSON-able. A user's mistake that the first rank meets is raised on all.
        """
        if self.store is None:
            return make()
        key = f"broadcast-{next(self._numbers)}"
        if self.first:
            try:
                made = make()
            except MegalabelError as error:
                self.store.set(key, json.dumps({"kind": type(error).__name__, "line": str(error)}))
                raise
            self.store.set(key, json.dumps({"made": made}))
            return made
        began = time.monotonic()
        while not self.store.check([key]):
            time.sleep(_LOOK_SECONDS if time.monotonic() - began < 1 else _LOOK_SECONDS_LATER)
        found = json.loads(self.store.get(key))
        if "kind" in found:
            raise getattr(errors, found["kind"], MegalabelError)(found["line"])
        return found["made"]  # type: ignore[no-any-return]

    def rank0_first(self, do: Callable[[], Made]) -> Made:
        """Let the first rank do something, then the others, who find in a cache what it left there."""
        made = self.on_rank0(do)
        return do() if made is None else made

    def on_rank0(self, do: Callable[[], Made]) -> Made | None:
        """Let the first rank do something while the others wait, however long; they return None."""
        made: list[Made] = []
        self.broadcast(lambda: made.append(do()) if self.first else None)
        return made[0] if made else None


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
