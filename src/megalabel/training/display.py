"""Show a training while it runs: live on a terminal, as plain lines elsewhere."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from megalabel.training._show import Show

__all__ = ["Show", "display"]


@contextmanager
def display(*, total_steps: int, epochs: int, title: str = "") -> Iterator[Show]:
    """Give an object to tell about every step and every evaluation; it writes to standard error.

    On a terminal there is a bar with epoch, step, loss and its curve, texts per second,
    memory and time left; evaluations stay as a list above it. Elsewhere there is a line
    every ten seconds, at the end of an epoch and for every evaluation. Set
    MEGALABEL_PROGRESS=0 to see nothing. A resumed run calls ``show.resumed(step)`` first;
    work that shows a progress bar of its own belongs in ``with show.pause():``.

    >>> with display(total_steps=2, epochs=1) as show:
    ...     for _ in range(2):
    ...         show.step(loss=0.5, texts=32)
    ...     show.evaluated({"P@1": 41.2, "PSP@5": 38.1}, best=True)
    """
    show = _kind()(total_steps, epochs, title)
    complete = False
    show.open()
    try:
        yield show
        complete = True
    finally:
        show.close(complete=complete)


def _kind() -> type[Show]:
    """Choose by the environment; rich is loaded for a terminal only."""
    if os.environ.get("MEGALABEL_PROGRESS") == "0":
        return Show
    if sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
        from megalabel.training._live_show import LiveShow

        return LiveShow
    from megalabel.training._plain_show import PlainShow

    return PlainShow
