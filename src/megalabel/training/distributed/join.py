"""Join the processes that ``torchrun`` started; if one of them is lost, stop with a one-line error."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from itertools import count
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from megalabel.errors import LostRankError, MegalabelError, SettingError
from megalabel.ranks import ALONE, Ranks
from megalabel.training.distributed.watch import Watch

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

__all__ = ["LostRankError", "join"]

AGAIN = "start again with --resume to go on from the last checkpoint, with as many ranks as you like"
TIMEOUT = 600.0  # seconds one rank waits for another
_SOON = 5.0  # seconds in which the store must answer a rank with an error
_times = count()  # a store outlives a run, so each run has its own keys


@contextmanager
def join(*, timeout: float = TIMEOUT, remedy: str = AGAIN) -> Iterator[Ranks]:
    """Join the processes that ``torchrun`` started; without torchrun there is a single process.

    Ranks communicate by gloo on a CPU and by NCCL on GPUs, where each uses the GPU of its local rank. The
    first rank with an error raises it, and the others exit silently with code 2; so do all if a rank
    dies, if its machine cannot be reached for 25 seconds (:class:`~megalabel.training.distributed.watch.Watch`), or
    if it does not respond in time. A process whose main thread then waits in a library prints the line and ends at
    once. Without torchrun, set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT (and LOCAL_RANK, for GPUs) in the
    environment.

    Args:
        timeout: seconds that one rank waits for another.
        remedy: what to do when a rank is lost.

    >>> with join() as ranks:
    ...     ranks.world, ranks.share(7)
    (1, range(0, 7))
    """
    if _number("WORLD_SIZE", 1) == 1:
        yield ALONE
        return
    watches: list[Watch] = []
    with _ended_by_signal(watches, remedy) as wakes:
        store, rank, world = _meet(timeout)
        watch, good = Watch(rank, world, _number("LOCAL_RANK", 0), remedy), False
        watches.append(watch)
        try:
            watch.start(store, timeout, wakes=wakes)
            yield _start(store, rank, world, timeout)
            good = True
        except KeyboardInterrupt:
            watch.leave()
            if rank == 0:
                raise
            raise SystemExit(130) from None
        except (MegalabelError, RuntimeError) as error:
            watch.leave()
            if not isinstance(error, MegalabelError) and not _is_lost(error):
                raise
            if not _reports(store, watch):
                raise SystemExit(2) from None
            watch.told = True
            if isinstance(error, MegalabelError):
                raise
            what = f"rank {rank} of {world} lost another rank, which died or did not answer within {timeout:g} s"
            raise LostRankError(what, remedy=remedy) from error
        finally:
            watch.close(good=good, patience=timeout)
            with suppress(RuntimeError, ValueError):  # also if rank 0 left first: threads of gloo would abort the exit
                dist.destroy_process_group()


def _meet(timeout: float) -> tuple[Store, int, int]:
    """Return the store that all ranks share, the number of this rank and the number of ranks."""
    where = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
    try:
        store, rank, world = next(rendezvous("env://", timeout=timedelta(seconds=timeout)))
    except dist.DistNetworkError as error:
        taken = "address already in use" in str(error).lower() or "EADDRINUSE" in str(error)
        what = f"the port {where} is in use" if taken else f"no other rank connected at {where} within {timeout:g} s"
        remedy = (
            "choose another with torchrun --master-port, or --standalone"
            if taken
            else "check that rank 0 runs at that address"
        )
        raise SettingError(what, remedy=remedy) from error
    except ValueError as error:
        remedy = "start with torchrun, which sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT"
        raise SettingError(f"this is one of several processes, but {error}", remedy=remedy) from error
    return PrefixStore(f"megalabel-{next(_times)}", store), rank, world


def _start(store: Store, rank: int, world: int, timeout: float) -> Ranks:
    if rank:
        os.environ["MEGALABEL_PROGRESS"] = "0"  # only rank 0 shows progress
    local = _number("LOCAL_RANK", 0)
    if local < torch.cuda.device_count():
        torch.cuda.set_device(local)
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    limit = timedelta(seconds=timeout)
    dist.init_process_group(backend, store=PrefixStore("group", store), rank=rank, world_size=world, timeout=limit)
    return Ranks(rank, world, dist.group.WORLD, store, local)


def _number(name: str, usual: int) -> int:
    value = os.environ.get(name, "")
    if value and not value.isdecimal():
        raise SettingError(f"{name} is {value!r} in the environment", remedy="start with torchrun")
    return int(value or usual)


def _reports(store: Store, watch: Watch) -> bool:
    """Return whether this rank says why all stop: the first with an error does."""
    if watch.told or watch.cut_off:  # another has said it, or the store may not answer
        return watch.speaks
    with suppress(RuntimeError):
        store.set_timeout(timedelta(seconds=_SOON))
        return bool(store.add("errors", 1) == 1)
    return watch.speaks


def _is_lost(error: RuntimeError) -> bool:
    """Return whether the error means a lost connection rather than a mistake of ours."""
    return isinstance(error, dist.DistError) or "gloo" in str(error).lower()


@contextmanager
def _ended_by_signal(watches: Sequence[Watch], remedy: str) -> Iterator[bool]:
    """Turn SIGTERM, by which torchrun ends all ranks when one has died, into an error with one line.

    So do the ``watches`` where they have lost a rank. Yields whether it does: only a main thread is told of signals.
    """

    def ended(number: int, frame: Any) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if any(watch.leaving for watch in watches):
            return
        lost = [watch.error for watch in watches if watch.error is not None]
        by_torchrun = LostRankError("stopped by SIGTERM, as torchrun does when another rank has died", remedy=remedy)
        raise lost[0] if lost else by_torchrun

    try:
        before = signal.signal(signal.SIGTERM, ended)
    except ValueError:  # not the main thread: the caller handles signals
        yield False
        return
    try:
        yield True
    finally:
        signal.signal(signal.SIGTERM, before)
