"""One request and its answer, between a connection and the app."""

from __future__ import annotations

import asyncio
import http
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from megalabel.serve.connection import Connection

__all__ = ["Exchange", "head_bytes"]

_log = logging.getLogger("megalabel.serve")


class Exchange:
    """One request and its answer: the receive and send of the app."""

    def __init__(self, connection: Connection, scope: dict[str, Any], keep_alive: bool) -> None:
        self.connection, self.scope, self.keep_alive = connection, scope, keep_alive
        self.started = self.finished = False  # the answer
        self._disconnected = False
        self._body, self._complete = bytearray(), False
        self._changed = asyncio.Event()
        expected = [value.lower() for name, value in scope["headers"] if name == b"expect"]
        self._continue = expected == [b"100-continue"] and scope["http_version"] == "1.1"
        self._head = b""
        self._unsent: int | None = None  # bytes of the answer by its Content-Length

    @property
    def buffered(self) -> int:
        """Bytes of the body that the app has not taken."""
        return len(self._body)

    def put(self, body: bytes, *, last: bool = False) -> None:
        """Take a part of the body."""
        if not self.finished:
            self._body += body
        self._complete = self._complete or last
        self._continue = False
        self._changed.set()

    def disconnect(self) -> None:
        """The client is gone."""
        self._disconnected = True
        self._changed.set()

    async def run(self) -> None:
        """Run the app; its errors are its own to answer."""
        try:
            await self.connection.app(self.scope, self.receive, self.send)
        except Exception:
            _log.exception("%s %s failed", self.scope["method"], self.scope["path"])
        finally:
            if not (self.finished or self._disconnected):
                self.connection.transport.abort()

    async def receive(self) -> dict[str, Any]:
        """Return the next part of the body, or that the client is gone or has its answer."""
        if self._continue and not self.started:
            self._continue = False
            self.connection.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        while not (self._changed.is_set() or self._disconnected or self.finished):
            self.connection.resume_reading()
            await self._changed.wait()
        self._changed.clear()
        if self._disconnected or self.finished:
            return {"type": "http.disconnect"}
        body, self._body = bytes(self._body), bytearray()
        return {"type": "http.request", "body": body, "more_body": not self._complete}

    async def send(self, message: Any) -> None:
        """Send the head of the answer, with its first bytes, or more of them."""
        if self._disconnected:
            return
        if message["type"] == "http.response.start":
            self._take_head(message["status"], message["headers"])
            return
        body, more = message.get("body", b""), message.get("more_body", False)
        if self.scope["method"] == "HEAD":
            body = b""
        elif self._unsent is not None:
            self._unsent -= len(body)
            if self._unsent < 0 or (self._unsent and not more):
                raise RuntimeError("the body of the answer does not have the length of its Content-Length")
        await self.connection.writable.wait()
        if self._disconnected:
            return
        self.started = True
        self.connection.transport.write(self._head + body)
        self._head = b""
        if not more:
            self.finished = True
            self._changed.set()
            self.connection.answered(self)

    def _take_head(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        all_headers = [*self.connection.server_state.default_headers, *headers]
        fields = dict(all_headers)
        closes = fields.get(b"connection", b"").lower() == b"close"
        if b"content-length" in fields:
            self._unsent = int(fields[b"content-length"])
        elif status not in (204, 304):
            self.keep_alive = False  # the end of the answer is the end of the connection
        self.keep_alive = self.keep_alive and not closes and not self._continue  # its body may come or not
        if not self.keep_alive and not closes:
            all_headers.append((b"connection", b"close"))
        self._head = head_bytes(status, all_headers)


def head_bytes(status: int, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return the status line and headers of an answer; raises ValueError if a header holds a line break."""
    lines = [b"%s: %s" % header for header in headers]
    if any(b"\r" in line or b"\n" in line for line in lines):
        raise ValueError("a header of the answer contains a line break")
    status_line = b"HTTP/1.1 %d %s" % (status, http.HTTPStatus(status).phrase.encode())
    return b"\r\n".join([status_line, *lines, b"\r\n"])
