"""One process at a time changes a saved model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path

from megalabel.errors import WriteError

__all__ = ["changing"]

_PATIENCE = 60.0  # seconds until we give up
_SOON = 1.0  # seconds until we say what we wait for


@contextmanager
def changing(
    place: str | PathLike[str], say: Callable[[str], None] | None = None, *, patience: float = _PATIENCE
) -> Iterator[None]:
    """Hold a saved model from before it is read until after it is written, so that no other change is lost.

    Where the disk has file locks, the operating system lets go of it when the process ends, however it
    ends. Reading needs no leave: a model is replaced whole. The mark is an empty file beside the model,
    which may stay.

    Args:
        place: the folder of the model.
        say: is told when there is something to wait for.
        patience: seconds to wait for another process; then a WriteError.

    >>> import tempfile
    >>> from pathlib import Path
    >>> place = Path(tempfile.mkdtemp()) / "model"
    >>> with changing(place):
    ...     sorted(path.name for path in place.parent.iterdir())
    ['.model.lock']
    """
    from filelock import FileLock, Timeout

    home = Path(place).resolve()
    lock = FileLock(home.with_name(f".{home.name}.lock"))
    try:
        try:
            lock.acquire(timeout=min(_SOON, patience))
        except Timeout:
            if say is not None:
                say(f"waiting for another process that changes {place}")
            lock.acquire(timeout=max(0.0, patience - _SOON))
    except Timeout as error:
        what = "another process is changing this model"
        raise WriteError(what, path=place, remedy="wait until it is done; a server with --save holds it") from error
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise WriteError(f"cannot be changed, {reason}", path=place) from error
    try:
        yield
    finally:
        lock.release()
