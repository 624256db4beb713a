"""Read and write files: a bad file gives a one-line error, and a write never destroys a good file.

Readers open plain or gzip files (detected by content) and turn every failure into a
:class:`~megalabel.errors.DataError` with file and line. Writers fill a temporary name in
the same folder, flush it to disk and rename: a reader sees the old file or the new one,
never half of one.
"""

from __future__ import annotations

import gzip
import io
import os
import secrets
import shutil
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

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
    "need",
    "open_bytes",
    "read_lines",
    "writing",
    "writing_folder",
]

BOM = b"\xef\xbb\xbf"
_GZIP = b"\x1f\x8b"
_BLOCK = 1 << 20


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
        with path.open("rb") as raw:
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
    import orjson

    for number, line in read_lines(path):
        if not line or line.isspace():
            continue
        try:
            row = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            rest = decode(line, path, number)[error.pos :].lstrip("-")
            odd = next((word for word in ("NaN", "Infinity") if rest.startswith(word)), None)
            what = error.msg if odd is None else f"{odd} is no number in JSON"
            raise DataError(f"broken JSON ({what}, at column {error.colno})", path=path, line=number) from error
        if not isinstance(row, dict):
            raise DataError("a JSON object like {...} was expected on this line", path=path, line=number)
        yield number, row


@contextmanager
def writing(path: str | PathLike[str]) -> Iterator[IO[bytes]]:
    """Write a file whole or not at all; a name ending in .gz is compressed, the same bytes every time.

    >>> import tempfile, pathlib
    >>> target = pathlib.Path(tempfile.mkdtemp()) / "greeting.txt"
    >>> with writing(target) as out:
    ...     _ = out.write(b"hello")
    >>> target.read_text()
    'hello'
    """
    path = Path(path)
    temporary = _beside(path, "part")
    try:
        with temporary.open("xb") as raw:
            if path.suffix == ".gz":
                with _packing(raw) as packed:
                    yield packed
            else:
                yield raw
            raw.flush()
            os.fsync(raw.fileno())
        temporary.replace(path)
    except OSError as error:
        raise WriteError(f"could not write, {_reason(error)}; nothing was changed", path=path) from error
    finally:
        with suppress(OSError):
            temporary.unlink()


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
        raise WriteError(f"could not make this folder, {_reason(error)}", path=path) from error


@contextmanager
def writing_folder(path: str | PathLike[str], *, overwrite: bool = False) -> Iterator[Path]:
    """Fill a folder whole or not at all: work in a temporary one beside it, then rename.

    An existing ``path`` that is not empty is left alone unless ``overwrite``; then the old
    folder stays in place until the new one is complete. An error about a file in the
    temporary folder names the path the file would have had.
    """
    path = Path(path)
    home = path.resolve()  # a link stays a link, and "." has a name
    temporary = _beside(home, "part")
    try:
        check_target(path, overwrite=overwrite)
        home.parent.mkdir(parents=True, exist_ok=True)
        temporary.mkdir()
        yield temporary
        _swap(temporary, home)
    except OSError as error:
        raise WriteError(f"could not write, {_reason(error)}; nothing was changed", path=path) from error
    except MegalabelError as error:
        if error.path is not None and Path(error.path).is_relative_to(temporary):
            error.path = path / Path(error.path).relative_to(temporary)
        raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _swap(new: Path, home: Path) -> None:
    """Put the folder ``new`` where ``home`` is; if that fails the old one comes back.

    Where another process was faster, its folder stays.
    """
    if not home.exists():
        new.replace(home)
        return
    old = _beside(home, "old")
    home.replace(old)
    try:
        new.replace(home)
    except OSError:
        with suppress(OSError):
            old.replace(home)
        if home.exists():
            shutil.rmtree(old, ignore_errors=True)
        raise
    shutil.rmtree(old, ignore_errors=True)


@contextmanager
def _packing(raw: IO[bytes]) -> Iterator[IO[bytes]]:
    packed = gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0, compresslevel=6)
    with io.BufferedWriter(packed, _BLOCK) as stream:
        yield cast("IO[bytes]", stream)


def _beside(path: Path, ending: str) -> Path:
    """Return a unique hidden name in the same folder."""
    return path.parent / f".{path.name[:100]}.{secrets.token_hex(6)}.{ending}"


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
