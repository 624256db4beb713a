"""A lock: only one process at a time changes a saved model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path

from megalabel.locks import holding

__all__ = ["changing"]

_PATIENCE = 60.0  # seconds until an error


@contextmanager
def changing(
    place: str | PathLike[str], say: Callable[[str], None] | None = None, *, patience: float | None = None
) -> Iterator[None]:
    """Lock a saved model from before it is read until after it is written, so that no other change is lost.

    If the disk supports file locks, the operating system releases the lock when the process ends, however it
    ends. Reading needs no lock: a model is replaced atomically. The lock file is a small file beside the model
    that names the process; it may remain.

    Args:
        place: the folder of the model.
        say: called with a message if it has to wait.
        patience: seconds to wait for another process, a minute by default; then a WriteError.

    >>> import tempfile
    >>> from pathlib import Path
    >>> place = Path(tempfile.mkdtemp()) / "model"
    >>> with changing(place):
    ...     sorted(path.name for path in place.parent.iterdir())
    ['.model.lock']
    """
    home = Path(place).resolve()
    busy, remedy = "another process is changing this model", "wait until it is done; a server with --save holds it"
    lock = home.with_name(f".{home.name}.lock")
    patience = _PATIENCE if patience is None else patience
    with holding(lock, target=place, busy=busy, remedy=remedy, patience=patience, say=say):
        yield
