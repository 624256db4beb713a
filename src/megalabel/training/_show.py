"""The numbers of a training in progress, and how they are written."""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

__all__ = ["Show", "clock_time", "metrics_text", "resident_bytes"]

WINDOW = 50  # steps over which loss and speed are averaged
CURVE = 12  # the loss curve has up to twice as many points
SHOWN = ("P@1", "PSP@5")
BARS = "▁▂▃▄▅▆▇█"


class Show:
    """Count steps, loss and speed; this one shows nothing, those made from it do.

    ``loss`` is the mean of the last steps, ``speed`` the texts per second of the same
    steps without evaluations and pauses; ``seconds_left`` counts those in.
    """

    def __init__(
        self,
        total_steps: int,
        epochs: int,
        title: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.total_steps, self.epochs, self.title = max(total_steps, 1), epochs, title
        self.start_step = self.done = 0
        self.clock = clock
        self.begin = self.mark = clock()
        self.loss: float | None = None
        self.speed: float | None = None
        self.curve: list[float] = []  # means of ever longer stretches of steps
        self._stretch, self._waiting = 1, [0.0, 0.0]
        self._recent: deque[tuple[float, int, float]] = deque(maxlen=WINDOW)  # loss, texts, seconds

    def resumed(self, step: int) -> None:
        """Tell the step a resumed run goes on from."""
        self.start_step = self.done = step
        self.begin = self.mark = self.clock()
        self.note(f"going on from step {step:,}")

    def step(self, *, loss: float, texts: int) -> None:
        """Tell that one more step is done: its loss and how many texts it had."""
        now = self.clock()
        self._recent.append((float(loss), texts, now - self.mark))
        self.mark = now
        self.done += 1
        losses, counts, seconds = (sum(column) for column in zip(*self._recent, strict=True))
        self.loss = losses / len(self._recent)
        self.speed = counts / seconds if seconds > 0 else None
        self._draw(float(loss))
        self.after_step()

    def evaluated(self, metrics: Mapping[str, float], *, best: bool = False) -> None:
        """Tell the metrics on validation, in percent, and whether they are the best so far."""
        self.after_evaluation(metrics, best)
        self.mark = self.clock()

    def note(self, message: str) -> None:
        """Show one line that stays."""

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Make room for other work that shows its own progress; its time does not count as training speed."""
        self.hide()
        try:
            yield
        finally:
            self.mark = self.clock()
            self.unhide()

    def open(self) -> None:
        """Start showing."""

    def close(self, *, complete: bool) -> None:
        """Stop showing."""

    def hide(self) -> None:
        """Clear what moves."""

    def unhide(self) -> None:
        """Show it again."""

    def after_step(self) -> None:
        """Show a step."""

    def after_evaluation(self, metrics: Mapping[str, float], best: bool) -> None:
        """Show an evaluation."""

    @property
    def epoch(self) -> int:
        """The epoch the last step belongs to, from 1; 0 before the first step."""
        return -(-self.done * self.epochs // self.total_steps)

    @property
    def elapsed(self) -> float:
        """Seconds since the display was opened."""
        return self.clock() - self.begin

    @property
    def seconds_left(self) -> float | None:
        """Seconds to the end at the mean pace so far, all included."""
        steps = self.done - self.start_step
        return self.elapsed / steps * max(self.total_steps - self.done, 0) if steps else None

    @property
    def summary(self) -> str:
        """One line for the end of the training."""
        return f"{self.done - self.start_step:,} steps in {clock_time(self.elapsed)}"

    def facts(self) -> list[str]:
        """Return loss, speed, memory and time left, those that are known."""
        memory, left = resident_bytes(), self.seconds_left
        return [
            *([] if self.loss is None else [f"loss {self.loss:.4f}"]),
            *([] if self.speed is None else [f"{self.speed:,.0f} texts/s"]),
            *([] if memory is None else [f"{memory / 2**30:.1f} GiB"]),
            *([] if left is None else [f"{clock_time(left)} left"]),
        ]

    def spark(self) -> str:
        """Return the curve of the loss since the start as small bars."""
        finite = [value for value in self.curve if abs(value) < float("inf")]
        if len(finite) < 2:
            return ""
        low, high = min(finite), max(finite)
        scale = (len(BARS) - 1) / (high - low) if high > low else 0.0
        return "".join(BARS[round((value - low) * scale)] for value in finite)

    def _draw(self, loss: float) -> None:
        """Add to the curve; when it is full, join neighbours and make stretches twice as long."""
        self._waiting[0] += loss
        self._waiting[1] += 1
        if self._waiting[1] < self._stretch:
            return
        curve = [*self.curve, self._waiting[0] / self._waiting[1]]
        self._waiting = [0.0, 0.0]
        if len(curve) == 2 * CURVE:
            curve = [(left + right) / 2 for left, right in zip(curve[::2], curve[1::2], strict=True)]
            self._stretch *= 2
        self.curve = curve


def clock_time(seconds: float) -> str:
    """Write a duration as on a clock.

    >>> clock_time(72.4), clock_time(3 * 3600 + 5)
    ('1:12', '3:00:05')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def metrics_text(metrics: Mapping[str, float], between: str = ", ") -> str:
    """Write the metrics people look at first, or the first three where there are no such.

    >>> metrics_text({"P@1": 41.234, "P@3": 30.0, "PSP@5": 38.1})
    'P@1 41.23, PSP@5 38.10'
    """
    names = [name for name in SHOWN if name in metrics] or list(metrics)[:3]
    return between.join(f"{name} {metrics[name]:.2f}" for name in names)


def resident_bytes() -> int | None:
    """Return the memory this process holds, or its peak where the system tells no more, or None."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        pass
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
