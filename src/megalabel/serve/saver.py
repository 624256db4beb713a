"""Saves changed labels in the background."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from megalabel.errors import MegalabelError
from megalabel.serve.metrics import Metrics

__all__ = ["Saver"]

_PAUSE = 0.5  # seconds to wait for further changes
_log = logging.getLogger("megalabel.serve")


class Saver:
    """Calls ``save`` in a separate thread after changes, once for several changes.

    A failure is logged; saving is tried again after the next change and on close.
    """

    def __init__(self, save: Callable[[], None], metrics: Metrics) -> None:
        self.save, self.metrics = save, metrics
        self._changed = asyncio.Event()
        self._closing = asyncio.Event()
        self._unsaved = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start to wait for changes; needs a running event loop."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    def changed(self) -> None:
        """Schedule a save."""
        self._unsaved = True
        self._changed.set()

    async def close(self) -> None:
        """Save unsaved changes; raises if that fails."""
        self._closing.set()
        self._changed.set()
        if self._task is not None:
            await self._task
        if self._unsaved:
            await self._save()

    async def _run(self) -> None:
        while True:
            await self._changed.wait()
            if self._closing.is_set():
                return
            try:
                await asyncio.wait_for(self._closing.wait(), _PAUSE)
            except TimeoutError:
                self._changed.clear()
                try:
                    await self._save()
                except MegalabelError as error:
                    _log.error("labels could not be saved: %s", error)
                except Exception:
                    _log.exception("labels could not be saved")

    async def _save(self) -> None:
        self._unsaved = False
        try:
            await asyncio.to_thread(self.save)
        except BaseException:
            self._unsaved = True
            self.metrics.count_save(done=False)
            raise
        self.metrics.count_save(done=True)
