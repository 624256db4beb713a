"""What makes a save durable: flush to the disk, exchange two names in one step, tell living writers from dead ones.

:mod:`megalabel.files` builds the one way to save from these. Nothing else should need them but code that
appends to a file or writes its own names.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import secrets
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from hashlib import blake2b
from pathlib import Path

if sys.platform != "win32":
    import fcntl

__all__ = [
    "beside",
    "claimed",
    "exchange",
    "flush_folder",
    "flush_tree",
    "hold",
    "remove_abandoned",
    "remove_unused",
    "replace_folder",
]

_LONG = 100  # characters of a name that its temporary neighbours repeat
_TOKEN = 12  # characters that tell one writer from another
_NO_EXCHANGE = {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP}  # what file systems without it answer
_HERE, _SWAP = -100, 2  # AT_FDCWD; RENAME_EXCHANGE on Linux, RENAME_SWAP on macOS


# ------------------------------------------------------------------ flush


def flush_folder(folder: Path) -> None:
    """Flush the entries of a folder to the disk, so that a name in it outlives a power cut."""
    if os.name == "nt":
        return  # Windows cannot open a folder; it keeps names in its own journal
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def flush_tree(folder: Path) -> None:
    """Flush every file and folder below ``folder``, and itself; files get the rights that the umask grants.

    Other libraries write some of the files, and not all of them flush or leave a file readable for others.
    """
    rights = stat.S_IMODE(folder.stat().st_mode) & 0o666  # mkdir has applied the umask
    for parent, _, names in os.walk(folder, topdown=False):
        for name in names:
            path = Path(parent, name)
            if not path.is_symlink():
                _flush_file(path, rights)
        flush_folder(Path(parent))


def _flush_file(path: Path, rights: int) -> None:
    handle = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        mode = stat.S_IMODE(os.fstat(handle).st_mode)
        if mode & 0o666 != rights and os.name != "nt":
            with suppress(PermissionError):  # file systems without rights
                os.fchmod(handle, mode & 0o111 | rights)
        os.fsync(handle)
    finally:
        os.close(handle)


# ------------------------------------------------------------------ exchange


def exchange(one: Path, other: Path) -> bool:
    """Swap the names of two paths in one step; return False if the system cannot."""
    swap = _system_exchange()
    if swap is None:
        return False
    if swap(os.fsencode(one), os.fsencode(other)) == 0:
        return True
    number = ctypes.get_errno()
    if number in _NO_EXCHANGE:
        return False
    raise OSError(number, os.strerror(number), os.fspath(one), None, os.fspath(other))


@cache
def _system_exchange() -> Callable[[bytes, bytes], int] | None:
    with suppress(OSError, AttributeError, TypeError):
        library = ctypes.CDLL(None, use_errno=True)
        if sys.platform == "linux":
            linux = library.renameat2
            return lambda one, other: int(linux(_HERE, one, _HERE, other, _SWAP))
        if sys.platform == "darwin":
            darwin = library.renamex_np
            return lambda one, other: int(darwin(one, other, _SWAP))
    return None


def replace_folder(new: Path, home: Path) -> None:
    """Put the folder ``new`` where ``home`` is, durably; an older ``home`` then has the name ``new``.

    Where names cannot be exchanged, two renames do, and :func:`remove_abandoned` repairs what a kill leaves
    between them. If anything fails, both are where they were.
    """
    with _opened(home) as old:
        _lock(old)  # or it would seem abandoned under the name of the new one while we may still need it
        exists = home.exists()
        _exchange(new, home) if exists else new.replace(home)
        try:
            flush_folder(home.parent)
        except OSError:
            _exchange(new, home) if exists else home.replace(new)
            raise


def _exchange(new: Path, home: Path) -> None:
    if not exchange(new, home):
        _exchange_by_renames(new, home)


def _exchange_by_renames(new: Path, home: Path) -> None:
    old = new.with_suffix(".old")
    home.replace(old)
    try:
        new.replace(home)
    except BaseException:
        old.replace(home)
        raise
    old.replace(new)


# ------------------------------------------------------------------ temporary names and their writers


def beside(path: Path) -> Path:
    """Return a unique hidden name in the same folder, for what is to become ``path``."""
    return path.with_name(f".{_short(path.name)}.{secrets.token_hex(_TOKEN // 2)}.part")


@contextmanager
def claimed(path: Path, *, folder: bool) -> Iterator[Path]:
    """Make an empty file or folder beside ``path``, for as long as this process fills it.

    A lock on it, which ends with the process, tells others that its writer is alive (not on Windows, where nobody
    removes what is abandoned). Whatever has the name afterwards is removed.
    """
    while True:
        temporary = beside(path)
        if folder:
            temporary.mkdir()
            try:
                handle = -1 if os.name == "nt" else os.open(temporary, os.O_RDONLY)
            except FileNotFoundError:
                continue  # someone took it for abandoned before we had the lock
        else:
            handle = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
            if os.name == "nt":
                os.close(handle)  # a file that is open cannot be renamed there
                handle = -1
        try:
            if _lock(handle) is not False and _is(temporary, handle):
                break
        except BaseException:
            _close(handle)
            raise
        _close(handle)  # the same
    try:
        yield temporary
    finally:
        _remove(temporary)
        _close(handle)


def hold(folder: Path) -> int:
    """Keep a folder from :func:`remove_unused` until the handle that this returns is closed, or the process ends.

    Any number of processes may hold it. The handle is -1 where the system has no locks.
    """
    if sys.platform == "win32":
        return -1  # it does not remove a file that is mapped
    handle = -1
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    return handle


def remove_unused(folder: Path) -> bool:
    """Remove a folder unless a process fills or holds it; return whether it is gone."""
    with _opened(folder) as handle:
        if _lock(handle) is not False:
            shutil.rmtree(folder, ignore_errors=True)
    return not folder.exists()


def remove_abandoned(path: Path) -> None:
    """Complete or remove what writers of ``path`` left behind that were killed; those alive are left alone.

    If a kill came between two renames, so that nothing has the name ``path``, the old version gets it back.
    Nothing happens where the folder cannot be read or written.
    """
    with suppress(OSError):
        pattern = re.compile(rf"\.{re.escape(_short(path.name))}\.[0-9a-f]{{{_TOKEN}}}\.(old|part)")
        left = [other for other in path.parent.iterdir() if pattern.fullmatch(other.name)]
        for other in sorted(left, key=lambda each: each.suffix):  # .old before .part
            if other.suffix == ".old":
                _put_back(other, path)
            else:
                _remove_if_abandoned(other)


def _put_back(old: Path, home: Path) -> None:
    """Give an old version its name back, unless its writer lives: then wait for it."""
    with _opened(old.with_suffix(".part")) as handle:
        _lock(handle, wait=True)
        with suppress(FileNotFoundError):
            if home.exists():
                garbage = beside(home)
                old.replace(garbage)  # so that what is called .old is always whole
                _remove(garbage)
            else:
                old.replace(home)
                flush_folder(home.parent)


def _remove_if_abandoned(path: Path) -> None:
    with _opened(path) as handle:
        if _lock(handle) and _is(path, handle):
            _remove(path)


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    """Yield a handle of a file or folder, -1 if it cannot be opened."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        handle = -1
    try:
        yield handle
    finally:
        _close(handle)


def _lock(handle: int, *, wait: bool = False) -> bool | None:
    """Lock a file or folder until its handle is closed; False if another process has it, None without locks."""
    if sys.platform == "win32" or handle < 0:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _is(path: Path, handle: int) -> bool:
    """Return whether a handle, if there is one, is of what has this name now."""
    try:
        return handle < 0 or os.path.samestat(path.stat(), os.fstat(handle))
    except FileNotFoundError:
        return False


def _close(handle: int) -> None:
    if handle >= 0:
        os.close(handle)


def _remove(path: Path) -> None:
    """Remove a file or a folder, as far as possible."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


def _short(name: str) -> str:
    """Return a name, or the beginning of a long one with a hash of the rest."""
    if len(os.fsencode(name)) <= _LONG:
        return name
    return name[: _LONG // 5] + blake2b(os.fsencode(name), digest_size=16).hexdigest()
