"""Work for the model, in turns: texts of several requests in one call."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from megalabel.serve.meters import Meters
from megalabel.serve.settings import Settings

__all__ = ["Batcher", "FullError", "Job", "Part"]

Result = TypeVar("Result")

_CHARACTERS, _LABELS = 5_000, 500  # a text counts once more for each of these


class FullError(Exception):
    """Too much is waiting; ``seconds`` says when to try again."""

    def __init__(self, seconds: int) -> None:
        super().__init__(f"try again in {seconds} s")
        self.seconds = seconds


@dataclass(eq=False)
class Job:
    """The texts of one request, and how they are to be answered.

    >>> Job(["some text", "another"], k=12).group, Job(["x" * 20_000], k=1_000).weights
    (('all', None, False, 100), [7])
    """

    texts: Sequence[str]
    k: int = 5
    heads: str = "all"
    tail: float | None = None
    details: bool = False
    min_score: float | None = None
    next: int = 0  # texts handed out so far
    rows: list[bytes] = field(default_factory=list)  # answers so far
    answer: asyncio.Future[list[bytes]] = field(init=False)  # made when the job is put in
    weights: list[int] = field(init=False)  # how much work each text is

    def __post_init__(self) -> None:
        self.weights = [1 + len(text) // _CHARACTERS + self.k // _LABELS for text in self.texts]

    @property
    def group(self) -> tuple[str, float | None, bool, int]:
        """What jobs must have in common to be answered by one call; k is rounded up to a power of ten."""
        return self.heads, self.tail, self.details, 10 ** len(str(self.k - 1))


@dataclass(frozen=True)
class Part:
    """Some texts of a job, for one call of the model."""

    job: Job
    start: int
    stop: int

    @property
    def texts(self) -> Sequence[str]:
        """The texts."""
        return self.job.texts[self.start : self.stop]


class Batcher:
    """Gives one thread, which alone works with the model, its next piece of work.

    While the model is busy, texts wait; when it is free, those of as many requests as fit go into one call. The
    request that has waited longest comes first, each gives at most a share of the texts, and what is left of a large
    one goes to the end of the line: many texts do not keep one waiting. Nothing waits for others to come.

    Args:
        compute: answers some parts of one group, in the thread: a row for each text of each part.
        settings: how much may wait and how much goes into a call.
        meters: counts the calls.
    """

    def __init__(
        self, compute: Callable[[Sequence[Part]], list[list[bytes]]], settings: Settings, meters: Meters
    ) -> None:
        self.compute, self.settings, self.meters = compute, settings, meters
        self.waiting = 0  # weight of all jobs that are not answered
        self._jobs: deque[Job] = deque()
        self._calls: deque[tuple[Callable[[], Any], asyncio.Future[Any]]] = deque()
        self._wake = asyncio.Event()
        self._closing = False
        self._speed = 100.0  # weight a second, of late
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="model")
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to work; needs a running event loop."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Finish what is waiting, then stop."""
        self._closing = True
        self._wake.set()
        if self._task is not None:
            await self._task
        self._thread.shutdown()

    def put(self, job: Job) -> None:
        """Let a job wait for its answer; raises FullError where too much is waiting already."""
        weight = sum(job.weights)
        self._check_room(weight)
        job.answer = asyncio.get_running_loop().create_future()
        job.answer.add_done_callback(lambda _: self._leave(weight))
        if not job.texts:
            job.answer.set_result([])
            self.waiting += weight
            return
        self.waiting += weight
        self._jobs.append(job)
        self._wake.set()

    def call(self, work: Callable[[], Result], weight: int = 1) -> asyncio.Future[Result]:
        """Do one piece of work in the thread of the model, in turn; cancelled before its turn, it is not done."""
        self._check_room(weight)
        answer: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self.waiting += weight
        answer.add_done_callback(lambda _: self._leave(weight))
        self._calls.append((work, answer))
        self._wake.set()
        return answer

    def _check_room(self, weight: int) -> None:
        """Raise a FullError; a request larger than the whole queue is taken where nothing else waits."""
        if self.waiting and self.waiting + weight > self.settings.queue:
            raise FullError(max(1, min(60, round(self.waiting / self._speed))))

    def _leave(self, weight: int) -> None:
        self.waiting -= weight

    async def _run(self) -> None:
        while True:
            while self._calls and self._calls[0][1].done():
                self._calls.popleft()
            if self._calls:
                await self._do(*self._calls.popleft())
            parts = self._take()
            if parts:
                await self._answer(parts)
            elif not self._calls:
                if self._closing:
                    return
                self._wake.clear()
                await self._wake.wait()
                await asyncio.sleep(0)  # requests that came at the same moment go together

    async def _do(self, work: Callable[[], Any], answer: asyncio.Future[Any]) -> None:
        try:
            found = await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except Exception as error:
            _fail(answer, error)
        else:
            if not answer.done():
                answer.set_result(found)

    def _take(self) -> list[Part]:
        """Return what goes into the next call, and line up what is left."""
        parts: list[Part] = []
        room, left, again = self.settings.batch, deque[Job](), list[Job]()
        for job in self._jobs:
            if job.answer.done():  # given up
                continue
            if parts and (room <= 0 or not self.settings.batched or job.group != parts[0].job.group):
                left.append(job)
                continue
            part, weight = self._share(job, min(room, self.settings.share))
            parts.append(part)
            room -= weight
            job.next = part.stop
            if part.stop < len(job.texts):
                again.append(job)
        self._jobs = left
        self._jobs.extend(again)
        return parts

    @staticmethod
    def _share(job: Job, room: int) -> tuple[Part, int]:
        """Return the next texts of a job, one at least, and their weight."""
        start = stop = job.next
        weight = 0
        while stop < len(job.texts) and (stop == start or weight + job.weights[stop] <= room):
            weight += job.weights[stop]
            stop += 1
        return Part(job, start, stop), weight

    async def _answer(self, parts: list[Part]) -> None:
        start = time.perf_counter()
        try:
            rows = await asyncio.get_running_loop().run_in_executor(self._thread, self.compute, parts)
        except Exception as error:
            if len(parts) > 1:  # one text must not spoil the answers of others
                for part in parts:
                    await self._answer([part])
            else:
                _fail(parts[0].job.answer, error)
            return
        seconds = time.perf_counter() - start
        weight = sum(sum(part.job.weights[part.start : part.stop]) for part in parts)
        self._speed += 0.2 * (weight / max(seconds, 1e-6) - self._speed)
        self.meters.batch(sum(part.stop - part.start for part in parts), seconds)
        for part, some in zip(parts, rows, strict=True):
            job = part.job
            job.rows += some
            if part.stop == len(job.texts) and not job.answer.done():
                job.answer.set_result(job.rows)


def _fail(answer: asyncio.Future[Any], error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)
