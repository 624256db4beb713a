"""Progress of long work on standard error: a bar on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Timer
from typing import TypeVar

__all__ = ["announced", "notice", "progress", "track"]

Item = TypeVar("Item")

QUIET_SECONDS = 2.0  # work shorter than this shows nothing
FIRST_SECONDS = 5.0  # time to the first plain line when standard error is no terminal
LINE_SECONDS = 10.0  # time between plain lines
_shown: ContextVar[bool] = ContextVar("shown", default=False)  # whether this thread shows progress already


@contextmanager
def progress(what: str, total: int | None = None, unit: str = "rows") -> Iterator[Callable[[int], None]]:
    """Yield a function to call with the amount of work done since the last call.

    Work inside other work that is shown shows nothing of its own. MEGALABEL_PROGRESS=0 switches it off.

    >>> with progress("counting", total=3) as step:
    ...     step(1)
    ...     step(2)
    """
    if os.environ.get("MEGALABEL_PROGRESS") == "0" or _shown.get():
        yield lambda amount: None
        return
    show = _Bar(what, total, unit) if sys.stderr.isatty() else _Lines(what, total, unit)
    token = _shown.set(True)
    try:
        yield show.step
    finally:
        _shown.reset(token)
        show.close()


def track(items: Iterable[Item], what: str, total: int | None = None, unit: str = "rows") -> Iterator[Item]:
    """Yield the items and show progress."""
    with progress(what, total, unit) as step:
        waiting = 0
        for item in items:
            yield item
            waiting += 1
            if waiting == 256:
                step(waiting)
                waiting = 0
        step(waiting)


@contextmanager
def announced(line: str, say: Callable[[str], None]) -> Iterator[None]:
    """Say a line about the work in the block, if it takes longer than two seconds; from another thread."""
    timer = Timer(QUIET_SECONDS, say, [line])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def notice(line: str) -> None:
    """Print one line on standard error: something the user did not ask for was done, and why."""
    print(line, file=sys.stderr, flush=True)  # noqa: T201


class _Lines:
    """Plain lines for logs and pipes."""

    def __init__(self, what: str, total: int | None, unit: str) -> None:
        self.what, self.total, self.unit = what, total, unit
        self.done = 0
        self.start = self.last = time.monotonic()

    def step(self, amount: int) -> None:
        self.done += amount
        now = time.monotonic()
        if now - self.last >= (FIRST_SECONDS if self.last == self.start else LINE_SECONDS):
            self.last = now
            self.line(now)

    def line(self, now: float) -> None:
        speed = self.done / max(now - self.start, 1e-9)
        share = f" ({self.done / self.total:.0%})" if self.total else ""
        rest = f", {(self.total - self.done) / speed:,.0f} s left" if self.total and speed > 0 else ""
        notice(f"{self.what}: {self.done:,} {self.unit}{share}, {speed:,.0f}/s{rest}")

    def close(self) -> None:
        if self.last > self.start:
            self.line(time.monotonic())


class _Bar:
    """A live bar on a terminal; rich is loaded only once the work proves long."""

    def __init__(self, what: str, total: int | None, unit: str) -> None:
        self.what, self.total, self.unit = what, total, unit
        self.done = 0
        self.start = time.monotonic()
        self.bar: object | None = None

    def step(self, amount: int) -> None:
        self.done += amount
        if self.bar is None and time.monotonic() - self.start > QUIET_SECONDS:
            self._open()
        if self.bar is not None:
            self.bar.update(self.task, completed=self.done)  # type: ignore[attr-defined]

    def _open(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        bar = Progress(*columns, console=Console(stderr=True), transient=True)
        self.task = bar.add_task(f"{self.what} ({self.unit})", total=self.total)
        bar.start()
        self.bar = bar

    def close(self) -> None:
        if self.bar is not None:
            self.bar.stop()  # type: ignore[attr-defined]
