"""The queue in front of the model: texts of several requests go into one call."""

from __future__ import annotations

import asyncio
import errno
import logging
import re
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from megalabel.serve.metrics import Metrics
from megalabel.serve.settings import Settings

__all__ = ["Batcher", "Job", "JobPart", "ModelOutOfMemoryError", "QueueFullError"]

Result = TypeVar("Result")

_CHARACTERS, _LABELS = 5_000, 500  # each adds one to the weight of a text


_NO_MEMORY = re.compile("allocate memory|out of memory|bad_alloc|can't start new thread", re.IGNORECASE)  # in torch
_log = logging.getLogger("megalabel.serve")


class ModelOutOfMemoryError(MemoryError):
    """The model ran out of memory; the error that said so, whose frames may hold much of it, is dropped."""


class QueueFullError(Exception):
    """The queue is full; ``seconds`` says when to try again."""

    def __init__(self, seconds: int) -> None:
        super().__init__(f"try again in {seconds} s")
        self.seconds = seconds


@dataclass(eq=False)
class Job:
    """The texts of one request, and how to predict them.

    >>> Job(["some text", "another"], k=12).group, Job(["x" * 20_000], k=1_000).weights
    (('all', None, False, 100), [7])
    """

    texts: Sequence[str]
    k: int = 5
    heads: str = "all"
    tail: float | None = None
    details: bool = False
    min_score: float | None = None
    next: int = 0  # index of the first text not yet passed to the model
    rows: list[bytes] = field(default_factory=list)  # answered so far
    answer: asyncio.Future[list[bytes]] = field(init=False)  # created by Batcher.put
    weights: list[int] = field(init=False)  # the work for each text

    def __post_init__(self) -> None:
        self.weights = [1 + len(text) // _CHARACTERS + self.k // _LABELS for text in self.texts]

    @property
    def group(self) -> tuple[str, float | None, bool, int]:
        """Jobs of the same group can share a call; k is rounded up to a power of ten."""
        return self.heads, self.tail, self.details, 10 ** len(str(self.k - 1))


@dataclass(frozen=True)
class JobPart:
    """The texts ``start`` to ``stop`` of a job, for one call of the model."""

    job: Job
    start: int
    stop: int

    @property
    def texts(self) -> Sequence[str]:
        """The texts."""
        return self.job.texts[self.start : self.stop]


class Batcher:
    """Feeds the one thread that uses the model.

    While the model is busy, texts wait. When it is free, the texts of as many requests as fit go into one call, oldest
    request first. Each request contributes at most a share of the call, and the rest of a large request goes to the
    end of the queue, so that a large request does not block a small one. A call never waits for more texts to arrive.

    Args:
        compute: predicts parts of one group, in the thread; returns a row for each text of each part.
        settings: sizes of the queue and of a call.
        metrics: counts the calls.
    """

    def __init__(
        self, compute: Callable[[Sequence[JobPart]], list[list[bytes]]], settings: Settings, metrics: Metrics
    ) -> None:
        self.compute, self.settings, self.metrics = compute, settings, metrics
        self.waiting = 0  # weight of all unanswered jobs and calls
        self._jobs: deque[Job] = deque()
        self._calls: deque[tuple[Callable[[], Any], asyncio.Future[Any]]] = deque()
        self._wake = asyncio.Event()
        self._closing = False
        self._speed = 100.0  # recent weight per second
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="model")
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start to work; needs a running event loop."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Finish waiting work, then stop."""
        self._closing = True
        self._wake.set()
        if self._task is not None:
            await self._task
        self._thread.shutdown()

    def end(self) -> None:
        """End the thread after what it is doing now; the rest is dropped."""
        self._thread.shutdown(cancel_futures=True)

    def put(self, job: Job) -> None:
        """Add a job to the queue; raises QueueFullError if there is no room."""
        weight = sum(job.weights)
        self._check_room(weight)
        job.answer = asyncio.get_running_loop().create_future()
        job.answer.add_done_callback(lambda _: self._release(weight))
        self.waiting += weight
        if job.texts:
            self._jobs.append(job)
            self._wake.set()
        else:
            job.answer.set_result([])

    def call(self, work: Callable[[], Result], weight: int = 1) -> asyncio.Future[Result]:
        """Run a function in the thread of the model, in turn; it is skipped if cancelled before its turn."""
        self._check_room(weight)
        answer: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self.waiting += weight
        answer.add_done_callback(lambda _: self._release(weight))
        self._calls.append((work, answer))
        self._wake.set()
        return answer

    def _check_room(self, weight: int) -> None:
        """Raise QueueFullError if the weight does not fit; an empty queue accepts a request of any size."""
        if self.waiting and self.waiting + weight > self.settings.queue:
            raise QueueFullError(max(1, min(60, round(self.waiting / self._speed))))

    def _release(self, weight: int) -> None:
        self.waiting -= weight

    async def _run(self) -> None:
        while True:
            while self._calls and self._calls[0][1].done():
                self._calls.popleft()
            if self._calls:
                await self._run_call(*self._calls.popleft())
            parts = self._take()
            if parts:
                await self._predict(parts)
            elif not self._calls:
                if self._closing:
                    return
                self._wake.clear()
                await self._wake.wait()
                await asyncio.sleep(0)  # batch requests that arrived at the same moment

    async def _run_call(self, work: Callable[[], Any], answer: asyncio.Future[Any]) -> None:
        try:
            result = await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except Exception as error:
            _fail(answer, error)
        else:
            if not answer.done():
                answer.set_result(result)

    def _take(self) -> list[JobPart]:
        """Return the parts for the next call, and queue the rest again."""
        parts: list[JobPart] = []
        room, skipped, unfinished = self.settings.batch, deque[Job](), list[Job]()
        for job in self._jobs:
            if job.answer.done():  # cancelled
                continue
            if parts and (room <= 0 or not self.settings.batched or job.group != parts[0].job.group):
                skipped.append(job)
                continue
            part, weight = self._next_part(job, min(room, self.settings.share))
            parts.append(part)
            room -= weight
            job.next = part.stop
            if part.stop < len(job.texts):
                unfinished.append(job)
        self._jobs = skipped
        self._jobs.extend(unfinished)
        return parts

    @staticmethod
    def _next_part(job: Job, room: int) -> tuple[JobPart, int]:
        """Return the next texts of a job, at least one, and their weight."""
        start = stop = job.next
        weight = 0
        while stop < len(job.texts) and (stop == start or weight + job.weights[stop] <= room):
            weight += job.weights[stop]
            stop += 1
        return JobPart(job, start, stop), weight

    async def _predict(self, parts: list[JobPart]) -> None:
        start = time.perf_counter()
        try:
            rows = await asyncio.get_running_loop().run_in_executor(self._thread, self.compute, parts)
        except Exception as error:
            if len(parts) > 1:  # a text that fails must not affect other requests
                for part in parts:
                    await self._predict([part])
            else:
                _fail(parts[0].job.answer, error)
            return
        seconds = time.perf_counter() - start
        weight = sum(sum(part.job.weights[part.start : part.stop]) for part in parts)
        self._speed += 0.2 * (weight / max(seconds, 1e-6) - self._speed)
        self.metrics.count_batch(sum(part.stop - part.start for part in parts), seconds)
        for part, part_rows in zip(parts, rows, strict=True):
            job = part.job
            job.rows += part_rows
            if part.stop == len(job.texts) and not job.answer.done():
                job.answer.set_result(job.rows)


def _fail(answer: asyncio.Future[Any], error: Exception) -> None:
    if _is_out_of_memory(error):
        _log.error("a call of the model ran out of memory: %s", " ".join(str(error).split())[:300])
        error = ModelOutOfMemoryError()
    if not answer.done():
        answer.set_exception(error)


def _is_out_of_memory(error: Exception) -> bool:
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and _NO_MEMORY.search(str(error)) is not None
    )
