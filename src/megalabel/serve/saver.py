"""Saves a model with changed labels whole, in the background."""

from __future__ import annotations

import asyncio
import logging
import time

from megalabel.errors import MegalabelError, WriteError
from megalabel.model.journal import Journal
from megalabel.serve.metrics import Metrics

__all__ = ["Saver"]

PERIOD = 300.0  # seconds after which a change is folded into the model, however few there are
RETRY = 30.0  # seconds until a save that failed is tried again
_TICK = 0.5  # seconds between two looks
_log = logging.getLogger("megalabel.serve")


class Saver:
    """Folds the journal of a model into its files, in a separate thread: now and then, and on close.

    Nothing depends on it but the time that loading takes: what was acknowledged is in the journal. A failure is
    logged and tried again.

    Args:
        journal: the journal.
        metrics: counts attempts.
    """

    def __init__(self, journal: Journal, metrics: Metrics) -> None:
        self.journal, self.metrics = journal, metrics
        self._closing = asyncio.Event()
        self._next = 0.0  # time of the next periodic save, or of the next attempt
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start to look for changes; needs a running event loop."""
        self._next = time.monotonic() + PERIOD
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Fold what is pending; if that fails, a WriteError says where the changes are."""
        self._closing.set()
        if self._task is not None:
            await self._task
        if self.journal.pending:
            try:
                await self._fold()
            except Exception as error:
                raise WriteError(f"the whole model could not be saved ({error}); {self.journal.where()}") from error

    async def _run(self) -> None:
        failed = False
        while not self._closing.is_set():
            try:
                await asyncio.wait_for(self._closing.wait(), _TICK)
            except TimeoutError:
                late = time.monotonic() >= self._next
                if self.journal.pending and (late or (self.journal.due and not failed)):
                    failed = not await self._try()
                    self._next = time.monotonic() + (RETRY if failed else PERIOD)

    async def _try(self) -> bool:
        try:
            await self._fold()
        except MegalabelError as error:
            _log.error("the model could not be saved whole, which is tried again in %g s: %s", RETRY, error)
        except Exception:
            _log.exception("the model could not be saved whole, which is tried again in %g s", RETRY)
        else:
            return True
        return False

    async def _fold(self) -> None:
        try:
            await asyncio.to_thread(self.journal.fold)
        except BaseException:
            self.metrics.count_save(done=False)
            raise
        self.metrics.count_save(done=True)
