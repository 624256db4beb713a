"""Notice within seconds that another rank is gone: its process has ended, or its machine cannot be reached."""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import sys
import threading
import time
from contextlib import suppress
from hmac import compare_digest
from secrets import token_hex
from typing import TYPE_CHECKING

from megalabel.errors import LostRankError, SettingError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch._C._distributed_c10d import Store

__all__ = ["Watch"]

SILENCE = 25.0  # seconds without an answer from the system of another machine
_PROBES = 5  # questions within that time
_PATIENCE = 3.0  # seconds in which a rank may notice by itself, which it does in any exchange with the lost one
_SOON = 5.0  # seconds in which its main thread must wake; that rank 0 waits for others, which may need its store
_AT_MOST = 15.0  # seconds until it is ended, whatever it does
_GOOD, _BAD = b"+", b"-"  # last word of a rank: its work is done, or it has said why it stops
_TOKEN = 32  # characters by which rank 0 knows that a rank of this run connects
_KEY = "watch"
_LOOPBACK = ("localhost", "127.0.0.1", "::1")  # all ranks are on this machine, and nobody else may connect


class Watch:
    """A connection between rank 0 and each other rank, by which both notice that the other is gone.

    Nothing is sent until a rank leaves. A connection that closes without a last word means that the process has
    ended. Of a machine that is off, or cut off, the system tells: it asks the other every five seconds (TCP
    keepalive), and the other's system answers however busy its processes are, so that a rank which computes for an
    hour is not taken for lost. Where rank 0 stops because a rank is lost, its own connections tell the rest.

    A rank that has lost another is given three seconds to notice by itself. Then SIGTERM wakes its main thread; if that
    waits in a library for the lost rank, the process prints the line and ends with exit code 2.

    Args:
        rank: number of this process.
        world: number of processes.
        local: number of this process on its machine.
        remedy: what to do when a rank is lost.
    """

    def __init__(self, rank: int, world: int, local: int, remedy: str) -> None:
        self.rank, self.world, self.local, self.remedy = rank, world, local, remedy
        self.error: LostRankError | None = None  # the rank that was lost, if one was
        self.told = False  # whether another rank says why all stop, or this one has said it
        self.cut_off = False  # whether the lost rank may well live, but cannot be reached
        self._others: dict[socket.socket, int] = {}  # the rank at the other end
        self._changed = threading.Condition()
        self._leaving, self._closed = threading.Event(), threading.Event()
        self._silence = SILENCE
        self._main: int | None = None
        self._wake: tuple[socket.socket, socket.socket] | None = None
        self._thread: threading.Thread | None = None

    def start(self, store: Store, timeout: float, *, wakes: bool) -> None:
        """Connect to rank 0, or as rank 0 to all others, within so many seconds; then watch in the background.

        ``wakes`` says that SIGTERM makes the main thread, which calls this, raise ``error``.
        """
        self._main = threading.get_ident() if wakes else None
        self._silence = min(SILENCE, timeout)
        for other, rank in self._accepted(store, timeout) if self.rank == 0 else [(self._connected(store, timeout), 0)]:
            _keep_asking(other, self._silence)
            self._others[other] = rank
        self._wake = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name="megalabel-watch", daemon=True)
        self._thread.start()

    @property
    def leaving(self) -> bool:
        """Whether this rank is about to stop, so that nobody has to wake it."""
        return self._leaving.is_set()

    def leave(self) -> None:
        """Say that this rank is about to stop."""
        self._leaving.set()

    def close(self, *, good: bool, patience: float) -> None:
        """Say the last word; where all is well, rank 0 first waits for that of all others, for so many seconds."""
        self._leaving.set()
        if self.rank == 0 and self._thread is not None:
            with self._changed:
                if good:
                    self._changed.wait_for(lambda: not self._others or self.error is not None, patience)
                self._changed.wait_for(lambda: not self._others, _SOON)
        self._closed.set()
        if self._wake is not None and self._thread is not None:
            self._wake[1].send(b".")
            self._thread.join()
        for other in [*self._others, *(self._wake or ())]:
            with suppress(OSError):
                other.send(_GOOD if good else _BAD)
            other.close()

    @property
    def speaks(self) -> bool:
        """Whether this rank says why all stop where the ranks cannot agree on one: one for each machine does."""
        return not self.told and (self.rank <= 1 or self.local == 0)

    def _run(self) -> None:
        """Wait for last words; end this process if there is none."""
        assert self._wake is not None
        with selectors.DefaultSelector() as selector:
            for each in (self._wake[0], *self._others):
                selector.register(each, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select():
                    if key.fileobj is self._wake[0]:
                        return
                    assert isinstance(key.fileobj, socket.socket)
                    selector.unregister(key.fileobj)
                    self._gone(key.fileobj)

    def _gone(self, other: socket.socket) -> None:
        """Note that a rank has left, and how."""
        why = "whose process has ended"
        try:
            word = other.recv(1)
        except ConnectionError:
            word = b""
        except OSError:  # it timed out, or there is no route
            word, why, self.cut_off = b"", f"which could not be reached for {self._silence:g} s", True
        self.told = self.told or word == _BAD
        with self._changed:
            rank = self._others.pop(other)
            other.close()
            first = word != _GOOD and self.error is None
            if first:
                what = f"rank {self.rank} of {self.world} lost rank {rank}, {why}"
                self.error = LostRankError(what, remedy=self.remedy)
            self._changed.notify_all()
        if first:
            threading.Thread(target=self._end, name="megalabel-end", daemon=True).start()

    def _end(self) -> None:
        """End this process, by its main thread if that can be woken."""
        begin = time.monotonic()
        awake = self._leaving.wait(_PATIENCE)
        if not awake and self._main is not None:
            signal.pthread_kill(self._main, signal.SIGTERM)
            awake = self._leaving.wait(_SOON)
        if awake and self._closed.wait(begin + _AT_MOST - time.monotonic()):
            return
        if self.speaks:
            cursor = "\x1b[?25h" if sys.stderr.isatty() else ""  # a progress bar has hidden it
            sys.stderr.write(f"{cursor}megalabel: {self.error}\n")
            sys.stderr.flush()
        os._exit(2)

    def _accepted(self, store: Store, timeout: float) -> Iterator[tuple[socket.socket, int]]:
        """Yield the connections of all other ranks; a stranger is sent away."""
        here = os.environ["MASTER_ADDR"] in _LOOPBACK
        both = not here and socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if both else socket.AF_INET
        token, end, missing = token_hex(_TOKEN // 2), time.monotonic() + timeout, set(range(1, self.world))
        with socket.create_server(
            ("127.0.0.1" if here else "", 0), family=family, dualstack_ipv6=both, backlog=self.world
        ) as server:
            store.set(_KEY, json.dumps({"host": _own_address(), "port": server.getsockname()[1], "token": token}))
            while missing:
                server.settimeout(max(0.01, end - time.monotonic()))
                try:
                    other = server.accept()[0]
                except TimeoutError:
                    raise LostRankError(
                        f"rank {min(missing)} of {self.world} has not connected within {timeout:g} s",
                        remedy=self.remedy,
                    ) from None
                said = _greeting(other)
                rank = int(said[_TOKEN:]) if said[_TOKEN:].isdigit() else 0
                if compare_digest(said[:_TOKEN], token.encode()) and rank in missing:
                    missing.remove(rank)
                    yield other, rank
                else:
                    other.close()

    def _connected(self, store: Store, timeout: float) -> socket.socket:
        """Return the connection to rank 0."""
        where = json.loads(store.get(_KEY))
        try:
            first = socket.create_connection((where["host"], where["port"]), timeout)
            first.sendall(f"{where['token']}{self.rank:08d}".encode())
        except OSError as error:
            what = f"rank {self.rank} of {self.world} cannot connect to rank 0 at {where['host']}:{where['port']}"
            raise SettingError(what, remedy="see that no firewall is between the machines") from error
        return first


def _greeting(other: socket.socket) -> bytes:
    """Return the token and number that a rank sends when it has connected."""
    said = b""
    with suppress(OSError):
        other.settimeout(5.0)
        while len(said) < _TOKEN + 8 and (more := other.recv(_TOKEN + 8 - len(said))):
            said += more
    return said


def _keep_asking(other: socket.socket, silence: float) -> None:
    """Let the system close a connection whose other end has not answered for so many seconds."""
    other.settimeout(None)
    other.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    every = max(1, round(silence / _PROBES))
    options = {  # not every system has all of them
        "TCP_KEEPIDLE": every, "TCP_KEEPALIVE": every, "TCP_KEEPINTVL": every, "TCP_KEEPCNT": _PROBES - 1,
        "TCP_USER_TIMEOUT": round(1000 * silence),
    }  # fmt: skip
    for name, value in options.items():
        if hasattr(socket, name):
            other.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _own_address() -> str:
    """Return the address of this machine as the others see it: the one from which it reaches that of the store."""
    known = os.environ["MASTER_ADDR"]
    if known in _LOOPBACK:
        return "127.0.0.1"
    address = ""
    with suppress(OSError):
        family, kind, _, _, where = socket.getaddrinfo(known, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(where)  # sends nothing
            address = probe.getsockname()[0]
    return known if not address or address.startswith("127.") or address == "::1" else address
