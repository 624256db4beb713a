"""Listens on a port and runs the server until it is stopped."""

from __future__ import annotations

import asyncio
import gc
import re
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from megalabel.errors import SettingError
from megalabel.serve.responses import Problem
from megalabel.serve.settings import Settings

if TYPE_CHECKING:
    from megalabel.model import Model
    from megalabel.serve.engine import Engine

__all__ = ["Connection", "bind", "is_loopback", "run_server"]

_IDLE_SECONDS = 30  # before a connection without requests is closed
_UPGRADE = re.compile(rb"\r\nupgrade:", re.IGNORECASE)


def bind(host: str, port: int) -> socket.socket:
    """Bind a socket, so that a port in use is reported before a model is loaded.

    Connections are refused until :func:`run_server` listens. Port 0 picks any free port.
    """
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except (OSError, OverflowError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise SettingError(
            f"cannot listen on {host} port {port}: {reason.lower()}",
            remedy="choose another --port, or 0 for any free one",
        ) from error
    return listener


def is_loopback(host: str) -> bool:
    """Return whether an address can be reached from this machine only.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    with suppress(ValueError):
        return ip_address(host).is_loopback
    return host.lower() == "localhost"


def run_server(model: Model, settings: Settings, listener: socket.socket, ready: Callable[[str], None]) -> None:
    """Serve a model until SIGINT or SIGTERM; then finish open requests, and save labels if ``settings.save`` is set.

    Args:
        model: a trained model.
        settings: settings of the server.
        listener: a socket from :func:`bind`.
        ready: called with the address, such as ``http://127.0.0.1:8000/``, once the server answers.
    """
    from megalabel.serve.app import create_app  # imports torch, which bind does without

    app = create_app(model, settings)
    engine: Engine = app.state.engine
    config = uvicorn.Config(
        app,
        http=Connection.with_settings(settings),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=_IDLE_SECONDS,
        timeout_graceful_shutdown=int(settings.timeout) + 5,
    )
    try:
        _Server(config, engine, lambda: ready(_address(listener))).run(sockets=[listener])
    finally:
        listener.close()
    if engine.save_error is not None:
        raise engine.save_error


class _Server(uvicorn.Server):
    """Reports when it is ready, and does not treat a signal to stop as a failure."""

    def __init__(self, config: uvicorn.Config, engine: Engine, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self.engine, self.ready = engine, ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            gc.collect()
            gc.freeze()  # the model stays: do not traverse it again while requests wait
            self.ready()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        handlers = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: Any) -> None:
        self.engine.stopping = True
        super().handle_exit(sig, frame)


class Connection(HttpToolsProtocol):
    """uvicorn's HTTP connection, with time limits for slow clients and JSON for broken requests.

    Request headers must arrive in time and within their size limit. A client that does not read its answer, or goes
    on sending a refused body, is disconnected. uvicorn creates one instance per connection from the class it is given;
    :meth:`with_settings` returns such a class.
    """

    settings = Settings()

    @classmethod
    def with_settings(cls, settings: Settings) -> type[Connection]:
        """Return a subclass with these settings."""
        return type("Connection", (cls,), {"settings": settings})

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.header_bytes: int | None = None  # received so far; None outside the headers
        self.header_timer: asyncio.TimerHandle | None = None
        self.write_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start to wait for a request."""
        super().connection_made(transport)
        self._start_header_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Clean up."""
        self._stop_timers()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse the next bytes of a request."""
        if self.cycle is None or self.cycle.response_complete:
            self._start_header_timer()
            data = _without_upgrade(data)
        super().data_received(data)
        if self.header_bytes is not None and not self.transport.is_closing():
            self.header_bytes += len(data)
            limit = self.settings.header_bytes
            if self.header_bytes > limit:
                self._refuse(Problem(431, f"the request headers exceed {limit:,} bytes"))

    def on_message_begin(self) -> None:
        """Start to count the bytes of the headers."""
        self.header_bytes = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Pass the request to the app."""
        self.header_bytes = None
        if self.header_timer is not None:
            self.header_timer.cancel()
            self.header_timer = None
        super().on_headers_complete()

    def pause_writing(self) -> None:
        """Wait, but not forever, for the client to read."""
        super().pause_writing()
        self.write_timer = self.loop.call_later(self.settings.timeout, self.transport.abort)

    def resume_writing(self) -> None:
        """Continue to send."""
        if self.write_timer is not None:
            self.write_timer.cancel()
            self.write_timer = None
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """Answer a request that is not valid HTTP."""
        self._refuse(Problem(400, "invalid HTTP request"))

    def _unsupported_upgrade_warning(self) -> None:
        """Close after the answer to CONNECT and the like, since the parser reads no further."""
        if self.cycle is not None:
            self.cycle.keep_alive = False

    def _start_header_timer(self) -> None:
        if self.header_timer is None:
            self.header_timer = self.loop.call_later(self.settings.header_seconds, self._headers_too_slow)

    def _headers_too_slow(self) -> None:
        self.header_timer = None
        if self.header_bytes is None:
            self.transport.abort()
        else:
            seconds = self.settings.header_seconds
            self._refuse(Problem(408, f"the request headers did not arrive within {seconds:g} s"))

    def _refuse(self, problem: Problem) -> None:
        """Answer and close."""
        body = problem.body()
        headers = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body)
        self.transport.write(STATUS_LINE[problem.status_code] + headers + body)
        self.transport.close()
        self._stop_timers()

    def _stop_timers(self) -> None:
        for timer in (self.header_timer, self.write_timer):
            if timer is not None:
                timer.cancel()


def _without_upgrade(data: bytes) -> bytes:
    """Rename the header by which some clients (such as Java's) offer HTTP/2: the parser would drop the body."""
    headers, end, rest = data.partition(b"\r\n\r\n")
    return _UPGRADE.sub(b"\r\nX-Offer:", headers) + end + rest if b"pgrade" in headers else data


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"
