"""Runs the server until it is told to stop."""

from __future__ import annotations

import gc
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import uvicorn

from megalabel.serve.app import create_app
from megalabel.serve.engine import Engine
from megalabel.serve.protocol import Connection
from megalabel.serve.settings import Settings

if TYPE_CHECKING:
    from megalabel.model import Model

__all__ = ["run_server"]

_IDLE = 30  # seconds a connection is kept without a request


def run_server(model: Model, settings: Settings, place: socket.socket, ready: Callable[[str], None]) -> None:
    """Serve a model until SIGINT or SIGTERM: then requests under way are finished, and labels saved if they are to be.

    Args:
        model: a trained model.
        settings: of the server.
        place: from :func:`~megalabel.serve.bind.bind`.
        ready: called with the address, such as ``http://127.0.0.1:8000/``, once it answers.
    """
    app = create_app(model, settings)
    engine: Engine = app.state.engine
    config = uvicorn.Config(
        app,
        http=Connection.of(settings),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=_IDLE,
        timeout_graceful_shutdown=int(settings.timeout) + 5,
    )
    try:
        _Server(config, engine, lambda: ready(_address(place))).run(sockets=[place])
    finally:
        place.close()
    if engine.failure is not None:
        raise engine.failure


class _Server(uvicorn.Server):
    """Says when it is ready, and that a signal to stop is no failure."""

    def __init__(self, config: uvicorn.Config, engine: Engine, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self.engine, self.ready = engine, ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            gc.collect()
            gc.freeze()  # what is there now stays, and need not be looked through while requests wait
            self.ready()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        handlers = {one: signal.signal(one, self.handle_exit) for one in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for one, handler in handlers.items():
                signal.signal(one, handler)

    def handle_exit(self, sig: int, frame: Any) -> None:
        self.engine.stopping = True
        super().handle_exit(sig, frame)


def _address(place: socket.socket) -> str:
    host, port = place.getsockname()[:2]
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"
