"""HTTP on one connection: what uvicorn does, with time limits for slow clients."""

from __future__ import annotations

import asyncio
import re
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from megalabel.serve.problem import Problem
from megalabel.serve.settings import Settings

__all__ = ["Connection"]

_UPGRADE = re.compile(rb"\r\nupgrade:", re.IGNORECASE)


class Connection(HttpToolsProtocol):
    """Answers a broken request like any other, and waits for nobody forever.

    The head of a request has to be there in time and of limited size; who does not take an answer, or goes on
    sending a body that was refused, is cut off. uvicorn makes one for each connection of the class it is given,
    :meth:`of` says with what settings.
    """

    settings = Settings()

    @classmethod
    def of(cls, settings: Settings) -> type[Connection]:
        """Return the class with these settings."""
        return type("Connection", (cls,), {"settings": settings})

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.head: int | None = None  # bytes of a head that is not whole yet
        self.head_timer: asyncio.TimerHandle | None = None
        self.write_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin."""
        super().connection_made(transport)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._stop_timers()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on."""
        if self.cycle is None or self.cycle.response_complete:
            self._expect_head()
            data = _without_upgrade(data)
        super().data_received(data)
        if self.head is not None and not self.transport.is_closing():
            self.head += len(data)
            if self.head > self.settings.header_bytes:
                self._refuse(Problem(431, f"the head of a request has at most {self.settings.header_bytes:,} bytes"))

    def on_message_begin(self) -> None:
        """Begin to count the head."""
        self.head = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Let the app have the request."""
        self.head = None
        if self.head_timer is not None:
            self.head_timer.cancel()
            self.head_timer = None
        super().on_headers_complete()

    def pause_writing(self) -> None:
        """Wait for the client to take what was sent."""
        super().pause_writing()
        self.write_timer = self.loop.call_later(self.settings.timeout, self.transport.abort)

    def resume_writing(self) -> None:
        """Send on."""
        if self.write_timer is not None:
            self.write_timer.cancel()
            self.write_timer = None
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP."""
        self._refuse(Problem(400, "this is not HTTP as the server reads it"))

    def _unsupported_upgrade_warning(self) -> None:
        """Close after the answer to CONNECT and the like, since the parser reads no further."""
        if self.cycle is not None:
            self.cycle.keep_alive = False

    def _expect_head(self) -> None:
        if self.head_timer is None:
            self.head_timer = self.loop.call_later(self.settings.header_seconds, self._head_too_slow)

    def _head_too_slow(self) -> None:
        self.head_timer = None
        if self.head is None:
            self.transport.abort()
        else:
            self._refuse(Problem(408, f"the head did not come within {self.settings.header_seconds:g} s"))

    def _refuse(self, problem: Problem) -> None:
        """Answer and close."""
        body = problem.body()
        head = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body)
        self.transport.write(STATUS_LINE[problem.status_code] + head + body)
        self.transport.close()
        self._stop_timers()

    def _stop_timers(self) -> None:
        for timer in (self.head_timer, self.write_timer):
            if timer is not None:
                timer.cancel()


def _without_upgrade(data: bytes) -> bytes:
    """Rename the header by which some clients (Java's, for one) offer HTTP/2: the parser would drop the body."""
    head, end, rest = data.partition(b"\r\n\r\n")
    return _UPGRADE.sub(b"\r\nX-Offer:", head) + end + rest if b"pgrade" in head else data
