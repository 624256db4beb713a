"""What every request goes through: limits, guard, headers, counters."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from starlette.requests import ClientDisconnect

from megalabel.serve.engine import Engine
from megalabel.serve.guard import Guard
from megalabel.serve.problem import Problem

__all__ = ["Gate"]

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

_METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"}
_GONE = 499  # counted where a client left before its answer
_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"content-security-policy", b"default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"),
]
_log = logging.getLogger("megalabel.serve")


class Gate:
    """Outermost part of the app (plain ASGI): refuses what must not come in, and answers whatever goes wrong inside.

    A body is counted as it comes, with or without Content-Length, and has to be there in time. Bodies and answers
    that are held at the same moment are bounded together.
    """

    def __init__(self, app: App, engine: Engine) -> None:
        self.app, self.engine, self.settings = app, engine, engine.settings
        self.guard = Guard(engine.settings)
        self.open = 0  # requests
        self.held = 0  # bytes of bodies and answers

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Take one request, or the start and stop of the server."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        passing = _Passing(self, receive, send)
        start = time.perf_counter()
        self.open += 1
        try:
            await self._pass(scope, passing)
        finally:
            self.open -= 1
            self.held -= passing.held
            self._count(scope, passing.status, time.perf_counter() - start)

    async def _pass(self, scope: MutableMapping[str, Any], passing: _Passing) -> None:
        try:
            problem = self._refuse(scope)
            if problem is None:
                await self.app(scope, passing.receive, passing.send)
                return
        except Problem as found:
            problem = found
        except ClientDisconnect:
            passing.status = _GONE
            return
        except Exception:
            _log.exception("%s %s failed", scope["method"], scope["path"])
            problem = Problem(500, "something went wrong in the server; its log says more")
        if passing.status is None:
            await problem.response()(scope, passing.receive, passing.send)

    def _refuse(self, scope: MutableMapping[str, Any]) -> Problem | None:
        headers: dict[str, str] = {}
        for raw, value in scope["headers"]:
            name = raw.decode("latin-1")
            said = value.decode("latin-1")
            headers[name] = f"{headers[name]}, {said}" if name in headers else said
        if self.engine.stopping:
            return Problem(503, "the server is stopping", headers={"Connection": "close", "Retry-After": "5"})
        if self.open > self.settings.requests or self.held > self.settings.held_bytes:
            return Problem(429, "too many requests at once; try again in 1 s", headers={"Retry-After": "1"})
        length = headers.get("content-length", "")
        if length.isdecimal() and int(length[:20]) > self.settings.body_bytes:
            return self.too_large()
        return self.guard.refuse(scope["method"], scope["path"], headers)

    def too_large(self) -> Problem:
        """Return what is said of a body beyond the limit."""
        most = self.settings.body_bytes
        return Problem(
            413, f"the body has more than {most:,} bytes; send several requests, or start the server with --max-body"
        )

    def _count(self, scope: MutableMapping[str, Any], status: int | None, seconds: float) -> None:
        path = getattr(scope.get("route"), "path", "other").replace(":path}", "}")
        method = scope["method"] if scope["method"] in _METHODS else "other"
        self.engine.meters.request(method, path, status or _GONE, seconds)
        if self.settings.log_requests:
            client = (scope.get("client") or ("-",))[0]
            _log.info("%s %s %r %s %.1f ms", client, method, scope["path"], status or _GONE, 1e3 * seconds)


class _Passing:
    """One request on its way."""

    def __init__(self, gate: Gate, receive: Receive, send: Send) -> None:
        self.gate = gate
        self.held = 0
        self.status: int | None = None
        self._receive, self._send = receive, send
        self._whole = False  # the body has come
        self._bytes = 0
        self._until = asyncio.get_running_loop().time() + gate.settings.timeout

    def _hold(self, count: int) -> None:
        self.held += count
        self.gate.held += count

    async def receive(self) -> Message:
        """Give the next part of the body; a Problem where it is too large or too slow."""
        if self._whole:
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._until):
                message = await self._receive()
        except TimeoutError:
            seconds = self.gate.settings.timeout
            raise Problem(408, f"the body did not come within {seconds:g} s", headers={"Connection": "close"}) from None
        if message["type"] == "http.request":
            count = len(message.get("body", b""))
            self._bytes += count
            self._hold(count)
            if self._bytes > self.gate.settings.body_bytes:
                raise self.gate.too_large()
            self._whole = not message.get("more_body", False)
        return message

    async def send(self, message: Message) -> None:
        """Send a part of the answer, with headers for browsers."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = list(message.get("headers", ()))
            self._hold(next((int(value) for name, value in headers if name == b"content-length"), 0))
            message = {**message, "headers": headers + _HEADERS}
        await self._send(message)
