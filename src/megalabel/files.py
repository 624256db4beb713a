"""Read and write files: a bad file gives a one-line error, and a write never destroys a good file.

Readers open plain or gzip files (detected by content) and turn every failure into a
:class:`~megalabel.errors.DataError` with file and line. Writers fill a temporary name in
the same folder, flush it to the disk and rename: a reader sees the old file or the new one,
never half of one. :func:`writing_folder` is the one way to save a folder: models, checkpoints,
indexes, caches and exports. :func:`read_whole` reads one, however often it is replaced meanwhile.
"""

from __future__ import annotations

import gzip
import io
import mmap
import os
import shutil
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar, cast

from megalabel.disk import claimed, flush_folder, flush_tree, remove_abandoned, replace_folder
from megalabel.documents import has_duplicate_key, open_regular, parse_json
from megalabel.errors import DataError, MegalabelError, WriteError
from megalabel.progress import track

if TYPE_CHECKING:
    from os import PathLike

__all__ = [
    "check_target",
    "decode",
    "find",
    "json_rows",
    "make_folder",
    "map_file",
    "need",
    "open_bytes",
    "parse_row",
    "read_lines",
    "read_whole",
    "writing",
    "writing_folder",
]

BOM = b"\xef\xbb\xbf"
_GZIP = b"\x1f\x8b"
_BLOCK = 1 << 20
_PATIENCE = 60.0  # seconds to read a folder that is replaced again and again
_open_folders: set[Path] = set()  # being filled by writing_folder, which flushes all that is in them at its end

Result = TypeVar("Result")


def find(folder: Path, *names: str) -> Path | None:
    """Return the first of ``names``, plain or with ``.gz``, that is a file in ``folder``."""
    for name in names:
        for path in (folder / name, folder / f"{name}.gz"):
            try:
                if path.is_file():
                    return path
            except OSError as error:
                raise DataError(f"this folder cannot be read, {_reason(error)}", path=folder) from error
    return None


def need(folder: Path, *names: str) -> Path:
    """Return the result of :func:`find`; raises a DataError with the valid names if there is none."""
    path = find(folder, *names)
    if path is not None:
        return path
    if not folder.exists():
        raise DataError("no such folder", path=folder)
    if not folder.is_dir():
        raise DataError("this is a file, a folder was expected", path=folder)
    raise DataError(f"there is no {' or '.join(names)} in this folder", path=folder)


@contextmanager
def open_bytes(path: str | PathLike[str]) -> Iterator[IO[bytes]]:
    """Open a plain or gzip file for reading; every failure while it is read becomes a DataError."""
    path = Path(path)
    try:
        with open_regular(path) as raw:
            packed = raw.read(2) == _GZIP
            raw.seek(0)
            if path.suffix == ".gz" and not packed:
                empty = path.stat().st_size == 0
                raise DataError(
                    "the file is empty" if empty else "the name ends in .gz but this is not a gzip file",
                    path=path,
                    remedy=None if empty else "compress it with gzip, or drop .gz from the name",
                )
            with io.BufferedReader(gzip.open(raw), _BLOCK) if packed else raw as stream:
                yield cast("IO[bytes]", stream)
    except FileNotFoundError as error:
        raise DataError("no such file", path=path) from error
    except IsADirectoryError as error:
        raise DataError("this is a folder, a file was expected", path=path) from error
    except EOFError as error:
        raise DataError("the gzip file is cut off", path=path, remedy="copy or download it again") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"the gzip file is broken ({error})", path=path, remedy="copy or download it again") from error
    except PermissionError as error:
        raise DataError("no permission to read this file", path=path) from error
    except OSError as error:
        raise DataError(f"this file cannot be read, {_reason(error)}", path=path) from error


def map_file(path: str | PathLike[str]) -> mmap.mmap:
    """Map a file that is not empty into memory, to read; it stays what it is now, whatever takes its name."""
    with open_bytes(path) as stream:
        return mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)


def read_lines(path: str | PathLike[str]) -> Iterator[tuple[int, bytes]]:
    """Yield (line number from 1, line without its newline) of a plain or gzip file; an empty file is an error.

    A byte order mark at the start, as some editors write it, is skipped.
    """
    number = 0
    with open_bytes(path) as stream:
        for number, line in enumerate(track(stream, f"reading {Path(path).name}", unit="lines"), start=1):
            text = line[:-1] if line.endswith(b"\n") else line
            yield number, text.removeprefix(BOM) if number == 1 else text
        if number == 0:
            raise DataError("the file is empty", path=path)


def decode(line: bytes, path: str | PathLike[str], number: int) -> str:
    """Decode one line as UTF-8 or say where it is not."""
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(
            f"byte {error.start + 1} of the line is not UTF-8", path=path, line=number, remedy="save the file as UTF-8"
        ) from error


def json_rows(path: str | PathLike[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line number, object) of a JSON lines file; blank lines are skipped."""
    for number, line in read_lines(path):
        if not line or line.isspace():
            continue
        yield number, parse_row(line, path, number)


def parse_row(line: bytes, path: str | PathLike[str], number: int) -> dict[str, Any]:
    """Return the object on a line of a JSON lines file."""
    import orjson

    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        rest = decode(line, path, number)[error.pos :].lstrip("-")
        odd = next((word for word in ("NaN", "Infinity") if rest.startswith(word)), None)
        what = error.msg if odd is None else f"{odd} is no number in JSON"
        raise DataError(f"broken JSON ({what}, at column {error.colno})", path=path, line=number) from error
    if not isinstance(row, dict):
        raise DataError("a JSON object like {...} was expected on this line", path=path, line=number)
    if has_duplicate_key(line, row):
        parse_json(line, path, number)  # says which
    return row


@contextmanager
def writing(path: str | PathLike[str]) -> Iterator[IO[bytes]]:
    """Write a file completely or not at all; a name ending in .gz is compressed, the same bytes every time.

    >>> import tempfile, pathlib
    >>> target = pathlib.Path(tempfile.mkdtemp()) / "greeting.txt"
    >>> with writing(target) as out:
    ...     _ = out.write(b"hello")
    >>> target.read_text()
    'hello'
    """
    path = Path(path)
    try:
        if _is_inside(path):
            with path.open("wb") as raw, _packing(raw, path) as out:
                yield out
            return
        home = path.resolve()
        remove_abandoned(home)
        with claimed(home, folder=False) as temporary:
            with temporary.open("wb") as raw:
                with _packing(raw, path) as out:
                    yield out
                raw.flush()
                os.fsync(raw.fileno())
            temporary.replace(home)
            flush_folder(home.parent)
    except OSError as error:
        raise WriteError(f"could not write, {_reason(error)}; nothing was changed", path=path) from error


def check_target(path: str | PathLike[str], *, overwrite: bool = False) -> None:
    """Raise a WriteError if :func:`writing_folder` would refuse, before long work starts."""
    path = Path(path)
    try:
        if path.exists() and not path.is_dir():
            raise WriteError("a file of this name exists", path=path, remedy="choose another name")
        if path.is_dir() and any(path.iterdir()) and not overwrite:
            remedy = "choose another name or --overwrite"
            raise WriteError("the folder exists and is not empty", path=path, remedy=remedy)
    except OSError as error:
        raise WriteError(f"could not write, {_reason(error)}; nothing was changed", path=path) from error


def make_folder(path: str | PathLike[str]) -> None:
    """Create a folder and its parents if they do not exist."""
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WriteError(f"could not create this folder, {_reason(error)}", path=path) from error


@contextmanager
def writing_folder(path: str | PathLike[str], *, overwrite: bool = False) -> Iterator[Path]:
    """Write a folder completely or not at all: the only way to save.

    The caller fills a hidden folder beside ``path``. Then every file and folder in it is flushed to the disk, it
    takes the place of an older ``path`` in one step, and the older one is removed. A kill or a power cut at any
    moment leaves the old version or the new one; what else it leaves is removed by the next save or load.
    Files get the rights that the umask grants, whoever wrote them.

    An existing ``path`` that is not empty is left alone unless ``overwrite``. An error about a file in the
    temporary folder names the path the file would have had. Inside the folder of another ``writing_folder``
    nothing is flushed by itself: the outer one does that.
    """
    path = Path(path)
    home = path.resolve()  # a link stays a link, and "." has a name
    temporary = None
    try:
        check_target(path, overwrite=overwrite)
        if _is_inside(home):
            shutil.rmtree(home, ignore_errors=True)
            home.mkdir(parents=True)
            temporary = home
            yield home
            return
        _make_parents(home)
        remove_abandoned(home)
        with claimed(home, folder=True) as temporary:
            _open_folders.add(temporary)
            try:
                yield temporary
            finally:
                _open_folders.discard(temporary)
            check_target(path, overwrite=overwrite)
            flush_tree(temporary)
            replace_folder(temporary, home)
    except OSError as error:
        raise WriteError(f"could not write, {_reason(error)}; nothing was changed", path=path) from error
    except MegalabelError as error:
        if temporary is not None and error.path is not None and Path(error.path).is_relative_to(temporary):
            error.path = path / Path(error.path).relative_to(temporary)
        raise


def read_whole(folder: str | PathLike[str], card: str, read: Callable[[], Result]) -> Result:
    """Return what ``read`` makes of one version of a folder that another process may replace at any moment.

    Args:
        folder: the folder.
        card: the file in it that differs between any two versions.
        read: reads the folder; it is called again if the folder was replaced meanwhile, whatever came of that.
    """
    home = Path(folder).resolve()
    remove_abandoned(home)
    deadline = time.monotonic() + _PATIENCE
    while True:
        before = _version(home / card)
        try:
            result = read()
        except Exception:
            if _version(home / card) == before or time.monotonic() > deadline:
                raise
            continue
        if _version(home / card) == before:
            return result
        if time.monotonic() > deadline:
            remedy = "try again when it is saved less often"
            raise DataError("this was replaced repeatedly while it was being read", path=folder, remedy=remedy)


def _version(card: Path) -> tuple[object, ...]:
    """Return what identifies the version of a folder: its own number, and that and the content of its card."""
    try:
        return card.parent.stat().st_ino, card.stat().st_ino, card.read_bytes()
    except OSError as error:
        return (error.errno,)


def _is_inside(path: Path) -> bool:
    """Return whether a path is in a folder that is being filled."""
    return bool(_open_folders) and any(parent in _open_folders for parent in path.absolute().parents)


def _make_parents(home: Path) -> None:
    """Create the parents of a folder, each flushed to the disk."""
    missing = [parent for parent in home.parents if not parent.exists()]
    for parent in reversed(missing):
        with suppress(FileExistsError):
            parent.mkdir()
        flush_folder(parent.parent)


@contextmanager
def _packing(raw: IO[bytes], path: Path) -> Iterator[IO[bytes]]:
    """Compress what is written if the name of the file asks for it."""
    if path.suffix != ".gz":
        yield raw
        return
    packed = gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0, compresslevel=6)
    with io.BufferedWriter(packed, _BLOCK) as stream:
        yield cast("IO[bytes]", stream)


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
