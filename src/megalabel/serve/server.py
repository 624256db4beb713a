"""Listens on a port and runs the server until it is stopped."""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

import uvicorn

from megalabel.errors import SettingError
from megalabel.serve.connection import Connection
from megalabel.serve.settings import Settings

if TYPE_CHECKING:
    from megalabel.model import Model
    from megalabel.serve.engine import Engine

__all__ = ["bind", "is_loopback", "run_server"]

_IDLE_SECONDS = 30  # before a connection without requests is closed
_BACKLOG = 128  # connections that the system holds until they are accepted
_OTHER_FILES = 64  # open files that are no connections
_FEW_FILES = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_log = logging.getLogger("megalabel.serve")


def bind(host: str, port: int) -> socket.socket:
    """Bind a socket, so that a port in use is reported before a model is loaded.

    Connections are refused until :func:`run_server` listens. Port 0 picks any free port.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)  # asyncio sets TCP_NODELAY only if the protocol is known
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
    """Serve a model until SIGINT or SIGTERM; then finish open requests, and save the model if ``settings.save`` is set.

    A second SIGINT ends at once: what was acknowledged is in the journal of the model.

    Args:
        model: a trained model.
        settings: settings of the server.
        listener: a socket from :func:`bind`.
        ready: called with the address, such as ``http://127.0.0.1:8000/``, once the server answers.
    """
    from megalabel.serve.app import create_app  # imports torch, which bind does without

    settings = replace(settings, connections=min(settings.connections, max(8, _open_files() - _OTHER_FILES)))
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
        backlog=_BACKLOG,
        timeout_keep_alive=_IDLE_SECONDS,
        timeout_graceful_shutdown=int(settings.timeout) + 5,
    )
    try:
        _Server(config, engine, lambda: ready(_address(listener))).run(sockets=[listener])
    finally:
        listener.close()
        engine.end()
    if engine.save_error is not None:
        raise engine.save_error


class _Server(uvicorn.Server):
    """Reports when it is ready, and does not treat a signal to stop as a failure."""

    def __init__(self, config: uvicorn.Config, engine: Engine, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self.engine, self.ready = engine, ready
        self._last_logged = -60.0

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        asyncio.get_running_loop().set_exception_handler(self._on_loop_error)
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
        self.engine.hurried = self.force_exit

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        if self.force_exit:  # uvicorn cancels the app, which logs that as an error
            await self.lifespan.shutdown()

    def _on_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Log in one line a minute that no connection can be accepted; asyncio would log thousands of tracebacks."""
        error = context.get("exception")
        if not isinstance(error, OSError) or error.errno not in _FEW_FILES:
            loop.default_exception_handler(context)
        elif loop.time() > self._last_logged + 60.0:
            self._last_logged = loop.time()
            _log.error("new connections wait: %s", str(error.strerror).lower())


def _open_files() -> int:
    """Return how many files this process may have open, after raising that to what the system allows."""
    try:
        import resource
    except ImportError:  # another system
        return 1 << 16
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 1 << 16 if hard == resource.RLIM_INFINITY else min(hard, 1 << 16)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return wanted
    return 1 << 16 if soft == resource.RLIM_INFINITY else soft


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"
