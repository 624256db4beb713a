"""Training as plain lines, for logs and pipes."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from megalabel.progress import LINE_SECONDS
from megalabel.training._show import Show, metrics_text

__all__ = ["PlainShow"]


class PlainShow(Show):
    """Print a line every few seconds, at the end of every epoch and for every evaluation."""

    def open(self) -> None:
        """Say what starts."""
        self.last = self.clock()
        self.note(f"{self.title or 'training'}: {self.total_steps:,} steps, {self.epochs:,} epochs")

    def note(self, message: str) -> None:
        """Print one line."""
        print(message, file=sys.stderr, flush=True)  # noqa: T201

    def after_step(self) -> None:
        """Print a line when an epoch is over or some time has passed."""
        ended = self.done * self.epochs // self.total_steps > (self.done - 1) * self.epochs // self.total_steps
        if ended or self.clock() - self.last >= LINE_SECONDS:
            self.last = self.clock()
            share = f"{self.done / self.total_steps:.0%}"
            where = f"epoch {self.epoch:,}/{self.epochs:,}, step {self.done:,}/{self.total_steps:,} ({share})"
            self.note(f"{where}: {', '.join(self.facts())}")

    def after_evaluation(self, metrics: Mapping[str, float], best: bool) -> None:
        """Print the metrics."""
        mark = ", best so far" if best else ""
        self.note(f"epoch {self.epoch:,}, step {self.done:,}: validation {metrics_text(metrics)}{mark}")

    def close(self, *, complete: bool) -> None:
        """Say how long it took, unless an error ended it."""
        if complete:
            self.note(self.summary)
