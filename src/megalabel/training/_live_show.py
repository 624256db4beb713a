"""Training on a terminal: a line for every evaluation, and below them a bar that moves."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from megalabel.training._show import Show, clock_time, metrics_text

__all__ = ["LiveShow"]


class LiveShow(Show):
    """Draw a bar with the numbers below it, four times a second; evaluations stay above it as a list."""

    def open(self) -> None:
        """Print the title and start to draw."""
        self.console = Console(stderr=True, highlight=False)
        if self.title:
            self.line(Text(self.title, style="bold"))
        self.unhide()

    def close(self, *, complete: bool) -> None:
        """Take the bar away and say how long it took, unless an error ended it."""
        self.hide()
        if complete:
            self.console.print(Text(self.summary, style="dim"))

    def hide(self) -> None:
        """Take the bar away."""
        self.live.stop()

    def unhide(self) -> None:
        """Draw it; a bar that was taken away cannot be used again."""
        self.live = Live(
            console=self.console,
            get_renderable=self.render,
            refresh_per_second=4,
            transient=True,
            redirect_stdout=sys.stdout.isatty(),  # elsewhere standard output is for results alone
        )
        self.live.start()

    def note(self, message: str) -> None:
        """Print a line above the bar."""
        self.console.print(Text(message))

    def after_evaluation(self, metrics: Mapping[str, float], best: bool) -> None:
        """Add a line to the list above the bar."""
        line = Text()
        line.append(f"  epoch {self.epoch:>{len(str(self.epochs))}}  ", style="cyan")
        if self.loss is not None:
            line.append(f"loss {self.loss:.4f}  ")
        line.append(metrics_text(metrics, between="  "), style="bold" if best else "")
        line.append(f"  {clock_time(self.elapsed)}", style="dim")
        line.append("  best" if best else "", style="green")
        self.line(line)

    def line(self, text: Text) -> None:
        """Print what stays on one line, whatever the width."""
        self.console.print(text, no_wrap=True, overflow="ellipsis")

    def render(self) -> RenderableType:
        """Return bar and numbers as they are now."""
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
        return Group(top, facts.append(f"  {self.spark()}", style="magenta"))
