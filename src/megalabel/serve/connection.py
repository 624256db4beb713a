"""One HTTP/1.1 connection: httptools parses its requests, the app answers one after the other."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import httptools

from megalabel.serve.exchange import Exchange, head_bytes
from megalabel.serve.responses import Problem
from megalabel.serve.settings import Settings

if TYPE_CHECKING:
    import uvicorn
    from uvicorn.server import ServerState

__all__ = ["Connection"]

_BUFFERED = 1 << 16  # bytes of a body beyond which no more are read until the app takes them
_PIPELINED = 16  # requests that may wait for the answer to an earlier one; then the connection ends after the last
_LINGER_SECONDS = 2.0  # for a client to read the last answer while it still sends


class Connection(asyncio.Protocol):
    """Reads requests within limits of time and size, and runs the app for one request at a time.

    Headers must arrive in time. Headers, and what frames a chunked body (chunk sizes with their extensions, trailers),
    have a limit of bytes. Trailers are dropped. An offer to upgrade to another protocol is ignored. A client that
    does not read its answer, or goes on sending a refused body, is disconnected. A client that ends its side of the
    connection counts as gone: its requests leave the queue.

    uvicorn creates an instance per connection from the class it is given; :meth:`with_settings` returns such a class.
    Of uvicorn, this uses only the arguments of the constructor, and calls of :meth:`shutdown`.
    """

    settings = Settings()

    @classmethod
    def with_settings(cls, settings: Settings) -> type[Connection]:
        """Return a subclass with these settings."""
        return type("Connection", (cls,), {"settings": settings})

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self.app = config.loaded_app
        self.idle_seconds = config.timeout_keep_alive
        self.server_state, self.app_state = server_state, app_state
        self.loop = _loop or asyncio.get_running_loop()
        self.transport: asyncio.Transport
        self.writable = asyncio.Event()
        self._parser = httptools.HttpRequestParser(self)
        self._url, self._headers = b"", list[tuple[bytes, bytes]]()
        self._in_headers = False
        self._incoming: Exchange | None = None  # whose body is arriving
        self._current: Exchange | None = None  # that the app answers
        self._waiting: deque[Exchange] = deque()  # pipelined
        self._refusal: Problem | None = None  # to send after the answers to earlier requests
        self._ignores_input = False
        self._progress, self._overhead = False, 0
        self._read_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None

    # ------------------------------------------------------------------ called by asyncio and uvicorn

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start to wait for a request."""
        self.transport = transport
        self.writable.set()
        self.server_state.connections.add(self)  # type: ignore[arg-type]
        if len(self.server_state.connections) > self.settings.connections:
            self._ignores_input = True
            self._write(Problem(429, "too many connections; try again in 1 s", headers={"Retry-After": "1"}))
            transport.close()
        else:
            self._wait(self.settings.header_seconds, transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the app that the client is gone."""
        self.server_state.connections.discard(self)
        self._ignores_input = True
        self._wait()
        self._stop_write_timer()
        if self._current is not None:
            self._current.disconnect()
        self._waiting.clear()
        self.writable.set()

    def data_received(self, data: bytes) -> None:
        """Parse the next bytes."""
        while data and not self._ignores_input:
            self._progress = False
            rest = b""
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                rest = self._without_upgrade() + data[upgrade.args[0] :]
            except httptools.HttpParserError:
                self._refuse(Problem(400, "invalid HTTP request"))
                return
            self._check_overhead(len(data))
            data = rest
        self._pause_or_resume()

    def shutdown(self) -> None:
        """Close when the requests received so far are answered."""
        last = self._waiting[-1] if self._waiting else self._current
        if last is None:
            self.transport.close()
        else:
            last.keep_alive = False

    def pause_writing(self) -> None:
        """Wait, but not forever, for the client to read."""
        self.writable.clear()
        self._write_timer = self.loop.call_later(self.settings.timeout, self.transport.abort)

    def resume_writing(self) -> None:
        """Continue to send."""
        self.writable.set()
        self._stop_write_timer()

    # ------------------------------------------------------------------ called by the parser

    def on_message_begin(self) -> None:
        """Start to read headers."""
        if self._ignores_input:
            return
        self._url, self._headers = b"", []
        self._in_headers = self._progress = True
        if self._current is None:
            self._wait(self.settings.header_seconds, self._headers_too_slow)

    def on_url(self, url: bytes) -> None:
        """Take a part of the target."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; a trailer is dropped."""
        if self._in_headers:
            self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Start the app, or queue the request."""
        if self._ignores_input or not self._in_headers:
            return
        size = len(self._url) + sum(len(name) + len(value) + 4 for name, value in self._headers)
        if size > self.settings.header_bytes:
            self._refuse(self._headers_too_large())
            return
        if self._parser.should_upgrade():
            if self._parser.get_method() == b"CONNECT":
                self._refuse(Problem(405, "CONNECT is not supported"))
            return  # the parser stops, and data_received starts another one
        self._in_headers = False
        version = self._parser.get_http_version()
        exchange = Exchange(self, self._scope(version), version == "1.1" and self._parser.should_keep_alive())
        self._incoming = exchange
        if self._current is None:
            self._start(exchange)
            return
        self._waiting.append(exchange)
        if len(self._waiting) == _PIPELINED:
            exchange.keep_alive = False

    def on_body(self, body: bytes) -> None:
        """Take a part of the body."""
        self._progress = True
        if self._incoming is not None:
            self._incoming.put(body)

    def on_message_complete(self) -> None:
        """Finish a request."""
        exchange, self._incoming = self._incoming, None
        if self._ignores_input or exchange is None:
            return
        exchange.put(b"", last=True)
        if not exchange.keep_alive:
            self._ignores_input = True
        elif self._current is None:  # the end of a refused body
            self._wait(self.idle_seconds, self.transport.close)

    # ------------------------------------------------------------------ called by exchanges

    def resume_reading(self) -> None:
        """Go on reading: the app took what was received."""
        self._pause_or_resume()

    def answered(self, exchange: Exchange) -> None:
        """Go on to the next request, or close."""
        if self.transport.is_closing():
            return
        self._current = None
        if not exchange.keep_alive:
            self._close()
            return
        elif self._waiting:
            self._start(self._waiting.popleft())
        elif self._refusal is not None:
            self._send(self._refusal)
        elif self._in_headers:
            self._wait(self.settings.header_seconds, self._headers_too_slow)
        elif self._incoming is exchange:
            self._wait(self.settings.header_seconds, self.transport.abort)
        else:
            self._wait(self.idle_seconds, self.transport.close)
        self._pause_or_resume()

    # ------------------------------------------------------------------

    def _scope(self, version: str) -> dict[str, Any]:
        """Return the scope of the request; raises if its target is invalid, which the parser reports as an error."""
        url = httptools.parse_url(self._url)
        path = url.path or b"/"
        headers = self._headers
        if url.host is not None:  # an absolute target: its host counts, not that of the header
            name = b"[%s]" % url.host if b":" in url.host else url.host
            host = name if url.port is None else b"%s:%d" % (name, url.port)
            headers = [(b"host", host), *(header for header in headers if header[0] != b"host")]
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": version,
            "method": self._parser.get_method().decode("ascii"),
            "scheme": "http",
            "path": unquote(path.decode("ascii"), errors="surrogateescape"),
            "raw_path": path,
            "query_string": url.query or b"",
            "root_path": "",
            "headers": headers,
            "server": self.transport.get_extra_info("sockname")[:2],
            "client": self.transport.get_extra_info("peername")[:2],
            "state": self.app_state.copy(),
        }

    def _start(self, exchange: Exchange) -> None:
        self._current = exchange
        self._wait()
        task = self.loop.create_task(exchange.run())
        self.server_state.tasks.add(task)
        task.add_done_callback(self.server_state.tasks.discard)

    def _without_upgrade(self) -> bytes:
        """Return the headers of a request again, without its offer to upgrade, for a new parser.

        Some clients, such as Java's, offer HTTP/2 this way. The parser takes what follows for the other protocol, even
        if it is the body of the request.
        """
        method, version = self._parser.get_method(), self._parser.get_http_version().encode()
        self._parser = httptools.HttpRequestParser(self)
        if not self._in_headers:  # offered in a trailer, which was dropped
            return b""
        self._in_headers = False
        lines = [b"%s: %s\r\n" % header for header in self._headers if header[0] != b"upgrade"]
        return b"".join([b"%s %s HTTP/%s\r\n" % (method, self._url, version), *lines, b"\r\n"])

    def _check_overhead(self, count: int) -> None:
        """Refuse headers, chunk extensions or trailers without end, which the parser would keep in memory."""
        inside = self._in_headers or self._incoming is not None
        self._overhead = self._overhead + count if inside and not self._progress else 0
        if self._overhead > self.settings.header_bytes:
            self._refuse(self._headers_too_large())

    def _headers_too_large(self) -> Problem:
        return Problem(431, f"the request headers exceed {self.settings.header_bytes:,} bytes")

    def _headers_too_slow(self) -> None:
        seconds = self.settings.header_seconds
        self._refuse(Problem(408, f"the request headers did not arrive within {seconds:g} s"))

    def _refuse(self, problem: Problem) -> None:
        """Read no further; answer when earlier requests are answered, then close."""
        if self._ignores_input:
            return
        self._ignores_input = True
        broken, self._incoming = self._incoming, None
        if broken is not None and broken is self._current:
            self._current = None
            broken.disconnect()
            if broken.started:
                self.transport.close()
                return
        elif broken is not None and self._waiting:
            self._waiting.pop()
        if self._current is None and (broken is None or not broken.finished):
            self._send(problem)
        elif self._current is None:  # the rest of a body whose request has its answer
            self._close()
        else:
            self._refusal = problem

    def _send(self, problem: Problem) -> None:
        self._write(problem)
        self._close()

    def _write(self, problem: Problem) -> None:
        response = problem.response()
        headers = [*response.raw_headers, (b"connection", b"close")]
        self.transport.write(head_bytes(problem.status_code, headers) + bytes(response.body))

    def _close(self) -> None:
        """Close when the client does, which gives one that still sends the time to read the answer, but soon."""
        self._ignores_input = True
        self.transport.write_eof()
        self.transport.resume_reading()
        self._wait(_LINGER_SECONDS, self.transport.abort)

    def _pause_or_resume(self) -> None:
        if self.transport.is_closing():
            return
        full = self._current is not None and self._current.buffered > _BUFFERED
        if full or self._waiting:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()

    def _wait(self, seconds: float | None = None, then: Callable[[], None] | None = None) -> None:
        """Replace the time limit for input; without arguments, there is none."""
        if self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None
        if seconds is not None and then is not None:
            self._read_timer = self.loop.call_later(seconds, then)

    def _stop_write_timer(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None
