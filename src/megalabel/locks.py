"""One process at a time: a lock file that says who holds it, and that the system releases however a process ends."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

from megalabel.errors import WriteError

__all__ = ["holding"]

_SOON = 1.0  # seconds until we say what we wait for
_SHOWN = 80  # characters of a command


@contextmanager
def holding(
    path: Path,
    *,
    target: str | os.PathLike[str],
    busy: str,
    remedy: str,
    patience: float,
    say: Callable[[str], None] | None,
) -> Iterator[None]:
    """Hold the lock file ``path``; a WriteError if another process holds it for longer than we wait.

    The file stays. Its content, process and time, only matters while it is held.

    Args:
        path: the lock file; its folder exists.
        target: what is locked, for messages.
        busy: what the other process does, such as "another process trains into this folder".
        remedy: what to do then.
        patience: seconds to wait.
        say: called with a message if there is something to wait for.
    """
    from filelock import FileLock, Timeout

    lock = FileLock(path)
    try:
        try:
            lock.acquire(timeout=min(_SOON, patience))
        except Timeout:
            if say is not None and patience > _SOON:
                say(f"waiting: {busy}{_holder(path)}, {target}")
            lock.acquire(timeout=max(0.0, patience - _SOON))
    except Timeout as error:
        raise WriteError(f"{busy}{_holder(path)}", path=target, remedy=remedy) from error
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise WriteError(f"cannot be locked, {reason}", path=target) from error
    try:
        _sign(path)
        yield
    finally:
        lock.release()


def _sign(path: Path) -> None:
    """Write down who holds the lock."""
    since = datetime.now().astimezone().isoformat(sep=" ", timespec="seconds")
    command = " ".join(Path(part).name if place == 0 else part for place, part in enumerate(sys.argv))
    with suppress(OSError):  # a full disk does not matter
        path.write_text(f"process {os.getpid()} since {since}: {' '.join(command.split())[:_SHOWN]}\n", "utf-8")


def _holder(path: Path) -> str:
    """Return who holds the lock, in brackets; nothing if they did not say."""
    with suppress(OSError, UnicodeDecodeError):
        line = " ".join(path.read_text("utf-8").split())
        return f" ({line})" if line else ""
    return ""
