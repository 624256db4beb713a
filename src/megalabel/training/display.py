"""Show a training run on standard error: a live bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from megalabel.progress import LINE_SECONDS, QUIET_SECONDS
from megalabel.wording import counted

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

__all__ = ["Display", "LiveDisplay", "PlainDisplay", "clock_time", "display", "metrics_text", "resident_bytes"]

WINDOW = 50  # loss and speed are averaged over this many steps
CURVE = 12  # the loss curve has up to twice as many points
HEADLINE = ("P@1", "PSP@5")  # the metrics to show
BARS = "▁▂▃▄▅▆▇█"


@contextmanager
def display(*, total_steps: int, epochs: int, epoch_steps: int | None = None, title: str = "") -> Iterator[Display]:
    """Show a run while the block runs; call the methods of :class:`Display` for every step and evaluation.

    On a terminal: a bar with epoch, step, loss and its curve, texts per second, memory and
    time left; evaluations stay as a list above it. Elsewhere: a line every ten seconds, at the
    end of each epoch and for each evaluation. MEGALABEL_PROGRESS=0 turns the display off.

    >>> with display(total_steps=2, epochs=1) as show:
    ...     for _ in range(2):
    ...         show.step(loss=0.5, texts=32)
    ...     show.evaluated({"P@1": 41.2, "PSP@5": 38.1}, best=True)
    """
    if os.environ.get("MEGALABEL_PROGRESS") == "0":
        kind = Display
    else:
        terminal = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        kind = LiveDisplay if terminal else PlainDisplay
    show = kind(total_steps, epochs, title, epoch_steps=epoch_steps)
    complete = False
    show.open()
    try:
        yield show
        complete = True
    finally:
        show.close(complete=complete)


class Display:
    """Count steps, loss and speed without showing them; subclasses override the hooks below to show them.

    ``loss`` is the mean over the last steps. ``speed`` is texts per second over the same steps,
    without evaluations and pauses; ``seconds_left`` includes both.
    """

    def __init__(
        self,
        total_steps: int,
        epochs: int,
        title: str = "",
        clock: Callable[[], float] = time.monotonic,
        epoch_steps: int | None = None,
    ) -> None:
        self.total_steps, self.epochs, self.title = max(total_steps, 1), epochs, title
        self.epoch_steps = max(1, total_steps // epochs) if epoch_steps is None else epoch_steps  # the last may be cut
        self.start_step = self.done = 0
        self.clock = clock
        self.begin = self.last_step = clock()
        self.loss: float | None = None
        self.speed: float | None = None
        self.curve: list[float] = []  # mean losses of stretches of steps
        self._stretch, self._stretch_losses = 1, [0.0, 0.0]  # steps per point; sum and count of the next point
        self._recent: deque[tuple[float, int, float]] = deque(maxlen=WINDOW)  # loss, texts, seconds

    def resumed(self, step: int) -> None:
        """Continue from this step; call it before the first step."""
        self.start_step = self.done = step
        self.begin = self.last_step = self.clock()
        self.note(f"resuming from step {step:,}")

    def step(self, *, loss: float, texts: int) -> None:
        """Count one more step with its loss and number of texts."""
        now = self.clock()
        self._recent.append((float(loss), texts, now - self.last_step))
        self.last_step = now
        self.done += 1
        losses, counts, seconds = (sum(column) for column in zip(*self._recent, strict=True))
        self.loss = losses / len(self._recent)
        self.speed = counts / seconds if seconds > 0 else None
        self._add_to_curve(float(loss))
        self.show_step()

    def evaluated(self, metrics: Mapping[str, float], *, by: str = "", best: bool = False) -> None:
        """Show validation metrics, in percent; ``best`` marks the best so far by the metric ``by``."""
        self.show_evaluation(metrics, by, best)
        self.last_step = self.clock()

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Hide the display while other work shows its own progress; its time does not count for ``speed``."""
        self.hide()
        try:
            yield
        finally:
            self.last_step = self.clock()
            self.unhide()

    # The hooks of subclasses.

    def open(self) -> None:
        """Start the display."""

    def close(self, *, complete: bool) -> None:
        """Stop the display; print a summary if the run is complete."""

    def note(self, message: str) -> None:
        """Print a line that stays."""

    def hide(self) -> None:
        """Clear the part that moves."""

    def unhide(self) -> None:
        """Draw it again."""

    def show_step(self) -> None:
        """Show the last step."""

    def show_evaluation(self, metrics: Mapping[str, float], by: str, best: bool) -> None:
        """Show an evaluation."""

    @property
    def epoch(self) -> int:
        """The epoch of the last step, from 1; 0 before the first step."""
        return -(-self.done // self.epoch_steps)

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return self.clock() - self.begin

    @property
    def seconds_left(self) -> float | None:
        """Estimated seconds to the end, at the mean pace so far; None before the first step."""
        steps = self.done - self.start_step
        return self.elapsed / steps * max(self.total_steps - self.done, 0) if steps else None

    @property
    def summary(self) -> str:
        """One line for the end of the run."""
        return f"{counted(self.done - self.start_step, 'step')} in {clock_time(self.elapsed)}"

    def facts(self) -> list[str]:
        """Return loss, speed, memory and time left, as far as they are known."""
        memory, left = resident_bytes(), self.seconds_left
        return [
            *([] if self.loss is None else [f"loss {self.loss:.4f}"]),
            *([] if self.speed is None else [f"{self.speed:,.0f} texts/s"]),
            *([] if memory is None else [f"{memory / 2**30:.1f} GiB"]),
            *([] if left is None else [f"{clock_time(left)} left"]),
        ]

    def sparkline(self) -> str:
        """Return the loss curve since the start as small bars; empty for fewer than two points."""
        finite = [value for value in self.curve if abs(value) < float("inf")]
        if len(finite) < 2:
            return ""
        low, high = min(finite), max(finite)
        scale = (len(BARS) - 1) / (high - low) if high > low else 0.0
        return "".join(BARS[round((value - low) * scale)] for value in finite)

    def _add_to_curve(self, loss: float) -> None:
        """Add a loss to the curve; a full curve merges neighbours and doubles the stretch of a point."""
        self._stretch_losses[0] += loss
        self._stretch_losses[1] += 1
        if self._stretch_losses[1] < self._stretch:
            return
        curve = [*self.curve, self._stretch_losses[0] / self._stretch_losses[1]]
        self._stretch_losses = [0.0, 0.0]
        if len(curve) == 2 * CURVE:
            curve = [(left + right) / 2 for left, right in zip(curve[::2], curve[1::2], strict=True)]
            self._stretch *= 2
        self.curve = curve


class PlainDisplay(Display):
    """Plain lines for logs and pipes: every few seconds, at the end of each epoch and for each evaluation."""

    def open(self) -> None:
        """Print the title and the number of steps."""
        self.last_line = self.clock()
        self.note(f"{self.title or 'training'}: {counted(self.total_steps, 'step')}, {counted(self.epochs, 'epoch')}")

    def close(self, *, complete: bool) -> None:
        """Print the summary if the run is complete."""
        if complete:
            self.note(self.summary)

    def note(self, message: str) -> None:
        """Print one line."""
        print(message, file=sys.stderr, flush=True)  # noqa: T201

    def show_step(self) -> None:
        """Print a line at the end of an epoch or after some time."""
        ended = self.done % self.epoch_steps == 0 or self.done == self.total_steps
        seconds = self.clock() - self.last_line
        if (ended and seconds >= QUIET_SECONDS) or seconds >= LINE_SECONDS:
            self.last_line = self.clock()
            share = f"{self.done / self.total_steps:.0%}"
            position = f"epoch {self.epoch:,}/{self.epochs:,}, step {self.done:,}/{self.total_steps:,} ({share})"
            self.note(f"{position}: {', '.join(self.facts())}")

    def show_evaluation(self, metrics: Mapping[str, float], by: str, best: bool) -> None:
        """Print the metrics."""
        mark = f", best{f' {by}' if by else ''} so far" if best else ""
        self.note(f"epoch {self.epoch:,}, step {self.done:,}: validation {metrics_text(metrics, by)}{mark}")


class LiveDisplay(Display):
    """A bar and numbers, redrawn four times a second by rich; evaluations stay as a list above it."""

    def open(self) -> None:
        """Print the title and start to draw."""
        from rich.console import Console
        from rich.text import Text

        self.console = Console(stderr=True, highlight=False)
        if self.title:
            self._print_line(Text(self.title, style="bold"))
        self.unhide()

    def close(self, *, complete: bool) -> None:
        """Remove the bar; print the summary if the run is complete."""
        from rich.text import Text

        self.hide()
        if complete:
            self.console.print(Text(self.summary, style="dim"))

    def note(self, message: str) -> None:
        """Print a line above the bar."""
        from rich.text import Text

        self.console.print(Text(message))

    def hide(self) -> None:
        """Remove the bar."""
        self.live.stop()

    def unhide(self) -> None:
        """Draw a new bar; a stopped one cannot be restarted."""
        from rich.live import Live

        self.live = Live(
            console=self.console,
            get_renderable=self.render,
            refresh_per_second=4,
            transient=True,
            redirect_stdout=sys.stdout.isatty(),  # a redirected standard output is for results alone
        )
        self.live.start()

    def show_evaluation(self, metrics: Mapping[str, float], by: str, best: bool) -> None:
        """Add a line to the list above the bar."""
        from rich.text import Text

        line = Text()
        line.append(f"  epoch {self.epoch:>{len(str(self.epochs))}}  ", style="cyan")
        if self.loss is not None:
            line.append(f"loss {self.loss:.4f}  ")
        line.append(metrics_text(metrics, by, separator="  "), style="bold" if best else "")
        line.append(f"  {clock_time(self.elapsed)}", style="dim")
        line.append(f"  best {by}".rstrip() if best else "", style="green")
        self._print_line(line)

    def _print_line(self, text: Text) -> None:
        """Print text that stays on one line, whatever the width."""
        self.console.print(text, no_wrap=True, overflow="ellipsis")

    def render(self) -> RenderableType:
        """Return the bar and the numbers of this moment."""
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        top = Table.grid(expand=True, padding=(0, 1))
        top.add_column(ratio=1, min_width=8)
        for _ in range(3):
            top.add_column(no_wrap=True, justify="right")
        top.add_row(
            ProgressBar(self.total_steps, self.done, complete_style="cyan", finished_style="green"),
            f"{self.done / self.total_steps:.0%}",
            Text(f"epoch {max(self.epoch, 1):,}/{self.epochs:,}", style="cyan"),
            f"step {self.done:,}/{self.total_steps:,}",
        )
        facts = Text("  ".join(self.facts()) or "starting", no_wrap=True, overflow="ellipsis")
        return Group(top, facts.append(f"  {self.sparkline()}", style="magenta"))


def clock_time(seconds: float) -> str:
    """Format a duration as on a clock.

    >>> clock_time(72.4), clock_time(3 * 3600 + 5)
    ('1:12', '3:00:05')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def metrics_text(metrics: Mapping[str, float], by: str = "", separator: str = ", ") -> str:
    """Format the headline metrics and the one that decides; the first three if none of those is present.

    >>> metrics_text({"P@1": 41.234, "P@3": 30.0, "PSP@5": 38.1}, by="P@3")
    'P@1 41.23, PSP@5 38.10, P@3 30.00'
    """
    names = [name for name in dict.fromkeys([*HEADLINE, by]) if name in metrics] or list(metrics)[:3]
    return separator.join(f"{name} {metrics[name]:.2f}" for name in names)


def resident_bytes() -> int | None:
    """Return the resident memory of this process, or its peak if the system reports only that; None if neither."""
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
