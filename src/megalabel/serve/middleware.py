"""What every request passes: access checks, limits, security headers, metrics."""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from collections.abc import Mapping
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from megalabel.memory import trim_memory
from megalabel.serve.engine import Engine
from megalabel.serve.responses import Problem
from megalabel.serve.settings import Settings

__all__ = ["AccessPolicy", "RequestGuard"]

_READ_METHODS = {"GET", "HEAD", "OPTIONS"}
_METHODS = {*_READ_METHODS, "POST", "PUT", "PATCH", "DELETE", "TRACE", "CONNECT"}
_PUBLIC_PATHS = {"/", "/health", "/docs"}  # need no key: they reveal nothing about the model
_PUBLIC_FOLDERS = ("/page/", "/docs/")
_TRIM_SECONDS = 5.0  # from a request until freed memory is returned to the system
_CLIENT_CLOSED = 499  # status in metrics and log if the client disconnects before the answer
_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"content-security-policy", b"default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"),
]
_log = logging.getLogger("megalabel.serve")


class AccessPolicy:
    """Checks Host, Origin and API key before the body of a request is read.

    A page of another site must not change labels or read answers through a user's browser: its requests carry a
    foreign Origin, and DNS rebinding shows in Host. Starlette's TrustedHostMiddleware would do part of this, but it
    knows neither "any numeric address" nor a trailing dot, and its errors are plain text.

    >>> policy = AccessPolicy(Settings(api_key="secret"))
    >>> policy.check("GET", "/labels", {"host": "localhost:8000", "x-api-key": "secret"}) is None
    True
    >>> policy.check("GET", "/labels", {"host": "evil.example", "x-api-key": "secret"}).status_code
    403
    """

    def __init__(self, settings: Settings) -> None:
        self.hosts = {name.lower().strip("[]").rstrip(".") for name in settings.hosts}
        self.any_address = settings.any_address
        self._key = None if settings.api_key is None else settings.api_key.encode()

    def check(self, method: str, path: str, headers: Mapping[str, str]) -> Problem | None:
        """Return why a request is refused, or None if it is allowed. Header names are lower-case."""
        if not self._is_allowed_host(headers.get("host", "")):
            return Problem(403, "this Host is not allowed; see megalabel serve --allow-host")
        if method not in _READ_METHODS and _is_cross_site(headers):
            return Problem(403, "pages of other sites may not use this server")
        if self._key is None or path in _PUBLIC_PATHS or path.startswith(_PUBLIC_FOLDERS) or self._has_key(headers):
            return None
        return Problem(
            401, "send the API key as Authorization: Bearer KEY or as X-API-Key", headers={"WWW-Authenticate": "Bearer"}
        )

    def _is_allowed_host(self, host: str) -> bool:
        name = _host_name(host)
        if name is None:
            return False
        return "*" in self.hosts or name in self.hosts or (self.any_address and _is_address(name))

    def _has_key(self, headers: Mapping[str, str]) -> bool:
        assert self._key is not None
        scheme, _, token = headers.get("authorization", "").partition(" ")
        bearer = token.strip() if scheme.lower() == "bearer" else ""
        matches = [
            hmac.compare_digest(key.encode("latin-1", "replace"), self._key)
            for key in (bearer, headers.get("x-api-key", ""))
        ]
        return any(matches)


def _is_cross_site(headers: Mapping[str, str]) -> bool:
    origin = headers.get("origin")
    if origin is None:
        return headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none")
    return origin.partition("://")[2].lower() != headers.get("host", "").lower()


def _host_name(host: str) -> str | None:
    """Return the lower-case name in a Host header, without the port, or None if the header is invalid."""
    try:
        parts = urlsplit(f"//{host}")
        name = parts.hostname
        _ = parts.port
    except ValueError:
        return None
    return None if name is None or parts.netloc != host or "@" in host else name.rstrip(".")


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


class RequestGuard:
    """The outermost middleware (plain ASGI): refuses forbidden requests, and turns every error into a Problem.

    The body is counted as it arrives, with or without Content-Length, and must arrive in time. The bodies and answers
    held in memory at the same time share one limit.
    """

    def __init__(self, app: ASGIApp, engine: Engine) -> None:
        self.app, self.engine, self.settings = app, engine, engine.settings
        self.policy = AccessPolicy(engine.settings)
        self.active_requests = 0
        self.held_bytes = 0  # of bodies and answers
        self._trim_timer: asyncio.TimerHandle | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request, or the start and stop of the server."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        exchange = _Exchange(self, receive, send)
        request = {**scope, "method": "GET"} if scope["method"] == "HEAD" else scope  # the server sends no body
        start = time.perf_counter()
        self.active_requests += 1
        try:
            await self._handle(request, exchange)
        finally:
            self.active_requests -= 1
            self.held_bytes -= exchange.held_bytes
            self._count(request, scope["method"], exchange.status, time.perf_counter() - start)
            if self._trim_timer is None:
                self._trim_timer = asyncio.get_running_loop().call_later(_TRIM_SECONDS, self._trim_memory)

    async def _handle(self, scope: Scope, exchange: _Exchange) -> None:
        try:
            problem = self._check(scope)
            if problem is None:
                await self.app(scope, exchange.receive, exchange.send)
                return
        except Problem as error:
            problem = error
        except ClientDisconnect:
            exchange.status = _CLIENT_CLOSED
            return
        except MemoryError:
            problem = Problem(
                503,
                "out of memory; send fewer or shorter texts at once, or try again later",
                code="out_of_memory",
                headers={"Retry-After": "1"},
            )
        except Exception:
            _log.exception("%s %s failed", scope["method"], scope["path"])
            problem = Problem(500, "internal error; see the log of the server")
        if exchange.status is None:
            await problem.response()(scope, exchange.receive, exchange.send)

    def _check(self, scope: Scope) -> Problem | None:
        values: dict[str, list[str]] = {}
        for name, value in scope["headers"]:
            values.setdefault(name.decode("latin-1"), []).append(value.decode("latin-1"))
        headers = {name: ", ".join(parts) for name, parts in values.items()}
        if self.engine.stopping:
            return Problem(503, "the server is stopping", headers={"Connection": "close", "Retry-After": "5"})
        if self.active_requests > self.settings.requests or self.held_bytes > self.settings.held_bytes:
            return Problem(429, "too many requests at once; try again in 1 s", headers={"Retry-After": "1"})
        length = headers.get("content-length", "")
        if length.isdecimal() and int(length[:20]) > self.settings.body_bytes:
            return self.too_large()
        return self.policy.check(scope["method"], scope["path"], headers)

    def _trim_memory(self) -> None:
        """Return freed memory to the system: bodies and texts of all sizes leave holes that add up."""
        self._trim_timer = None
        asyncio.get_running_loop().run_in_executor(None, trim_memory)

    def too_large(self) -> Problem:
        """Return the error for a body that exceeds the limit."""
        limit = self.settings.body_bytes
        return Problem(
            413, f"the body exceeds {limit:,} bytes; send several requests, or start the server with --max-body"
        )

    def _count(self, scope: Scope, method: str, status: int | None, seconds: float) -> None:
        route = getattr(scope.get("route"), "path_format", "other")
        method = method if method in _METHODS else "other"
        self.engine.metrics.count_request(method, route, status or _CLIENT_CLOSED, seconds)
        if self.settings.log_requests:
            client = (scope.get("client") or ("-",))[0]
            _log.info("%s %s %r %s %.1f ms", client, method, scope["path"], status or _CLIENT_CLOSED, 1e3 * seconds)


class _Exchange:
    """One request and its answer."""

    def __init__(self, guard: RequestGuard, receive: Receive, send: Send) -> None:
        self.guard = guard
        self.held_bytes = 0
        self.status: int | None = None
        self._receive, self._send = receive, send
        self._body_complete = False
        self._body_bytes = 0
        self._deadline = asyncio.get_running_loop().time() + guard.settings.timeout

    def _hold(self, count: int) -> None:
        self.held_bytes += count
        self.guard.held_bytes += count

    async def receive(self) -> Message:
        """Return the next part of the body; raises a Problem if the body is too large or too slow."""
        if self._body_complete:
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError:
            seconds = self.guard.settings.timeout
            raise Problem(
                408, f"the body did not arrive within {seconds:g} s", headers={"Connection": "close"}
            ) from None
        if message["type"] == "http.request":
            count = len(message.get("body", b""))
            self._body_bytes += count
            self._hold(count)
            if self._body_bytes > self.guard.settings.body_bytes:
                raise self.guard.too_large()
            self._body_complete = not message.get("more_body", False)
        return message

    async def send(self, message: Message) -> None:
        """Send a part of the answer, with security headers."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = list(message.get("headers", ()))
            self._hold(next((int(value) for name, value in headers if name == b"content-length"), 0))
            message = {**message, "headers": headers + _HEADERS}
        await self._send(message)
