"""Arrays that are written piece by piece: in memory while they are small, in the cache and mapped once they are large.

A large store is a folder of the cache, ``mapped/<hash>``: one file of plain numbers for each array, and ``card.json``
with the type, length and hash of each. The folder is named by the hash of its card, so processes that read the same
data share one folder, and the system holds its pages once, drops them when it needs memory, and reads them again.
"""

from __future__ import annotations

import json
import os
import shutil
import weakref
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from hashlib import blake2b
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from megalabel.data.cache import cache_folder, trim_cache, use_entry
from megalabel.disk import claimed, hold, remove_abandoned
from megalabel.errors import DataError, SettingError, WriteError
from megalabel.files import map_file
from megalabel.progress import notice

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

__all__ = ["ArrayWriter", "Arrays", "map_above"]

_CARD = "card.json"
_VERSION = 1  # of the files
_LIMIT = 64.0  # MB that stay in memory
_BLOCK = 1 << 24  # bytes hashed at a time
_BROKEN = (OSError, ValueError, KeyError, TypeError, RecursionError, DataError)


def map_above() -> float:
    """Return from how many bytes on data is mapped from the cache: 64 MB, or $MEGALABEL_MAP_ABOVE, in MB."""
    text = os.environ.get("MEGALABEL_MAP_ABOVE", str(_LIMIT))
    try:
        limit = float(text)
    except ValueError:
        limit = -1.0
    if not limit >= 0:
        raise SettingError(f"MEGALABEL_MAP_ABOVE is {text!r}", remedy="give a number of MB, such as 64, or inf")
    return limit * 1e6


class Arrays:
    """Arrays by name, which nobody changes; ``folder`` is where they are mapped from, None in memory.

    A process that gets mapped arrays from another one, pickled, gets the folder and maps it too. The folder is not
    removed from the cache while any process has an array of it.
    """

    def __init__(self, by_name: Mapping[str, NDArray[Any]], folder: Path | None = None) -> None:
        self.by_name, self.folder = dict(by_name), folder

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.by_name[name]

    def __reduce__(self) -> tuple[Any, ...]:
        return (Arrays, (self.by_name,)) if self.folder is None else (Arrays.open, (self.folder,))

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for array in self.by_name.values())

    @classmethod
    def open(cls, folder: Path) -> Arrays:
        """Map the arrays of a folder, of which card and sizes must be as they were written."""
        try:
            return _map(folder, _read_card(folder))
        except _BROKEN as error:
            raise DataError(f"this data is gone or damaged ({error})", path=folder, remedy="load it again") from error


class ArrayWriter:
    """Takes arrays piece by piece and holds at most ``limit`` bytes of them in memory, by default :func:`map_above`.

    Where the cache cannot be written, everything stays in memory, with one line of notice.

    >>> writer = ArrayWriter({"ids": np.int32})
    >>> writer.append("ids", np.arange(2))
    >>> writer.append("ids", [7])
    >>> writer.finish()["ids"]
    array([0, 1, 7], dtype=int32)
    """

    def __init__(self, dtypes: Mapping[str, DTypeLike], limit: float | None = None) -> None:
        self.dtypes = {name: np.dtype(dtype) for name, dtype in dtypes.items()}
        self.held = 0  # bytes
        self.limit = map_above() if limit is None else limit
        self._pieces: dict[str, list[NDArray[Any]]] = {name: [] for name in self.dtypes}
        self._files: dict[str, _File] | None = None
        self._folder = Path()  # being filled, if there are files
        self._stack = ExitStack()
        weakref.finalize(self, self._stack.close)  # a reader that fails leaves nothing behind

    def append(self, name: str, values: Any) -> None:
        """Add numbers to the end of an array."""
        piece = np.ascontiguousarray(values, dtype=self.dtypes[name])
        if self._files is not None and self._write(name, piece):
            return
        self._pieces[name].append(piece.copy() if piece is values else piece)
        self.held += piece.nbytes
        if self._files is None and self.held > self.limit:
            self._move_to_disk()

    def finish(self) -> Arrays:
        """Return the arrays; nothing can be added afterwards."""
        arrays = None if self._files is None else self._keep(self._files)
        if arrays is None:
            arrays = Arrays({name: self._joined(name) for name in self.dtypes})
        self._stack.close()
        return arrays

    def _joined(self, name: str) -> NDArray[Any]:
        pieces = self._pieces[name] or [np.empty(0, dtype=self.dtypes[name])]
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def _move_to_disk(self) -> None:
        """Write what is in memory to files, and all that follows."""
        try:
            home = cache_folder("mapped", "arrays")
            home.parent.mkdir(parents=True, exist_ok=True)
            remove_abandoned(home)
            self._folder = self._stack.enter_context(claimed(home, folder=True))
            self._files = {name: _File(self._stack, self._folder / f"{name}.bin") for name in self.dtypes}
        except (OSError, WriteError) as error:
            self._stay_in_memory(error)
            return
        waiting, self._pieces = self._pieces, {name: [] for name in self.dtypes}
        for name, pieces in waiting.items():
            for piece in pieces:
                if self._files is None or not self._write(name, piece):
                    self._pieces[name].append(piece)

    def _write(self, name: str, piece: NDArray[Any]) -> bool:
        assert self._files is not None
        try:
            self._files[name].write(piece)
        except OSError as error:
            self._stay_in_memory(error)
            return False
        return True

    def _stay_in_memory(self, error: Exception) -> None:
        """Read back what was written, and write no more."""
        why = error.strerror if isinstance(error, OSError) else str(error)
        notice(f"the cache cannot be written ({why}); the data stays in memory")
        self.limit = float("inf")
        if self._files is not None:
            for name, file in self._files.items():
                self._pieces[name] = [*self._pieces[name], file.read(self.dtypes[name])]
            self._files = None
        self._stack.close()

    def _keep(self, files: Mapping[str, _File]) -> Arrays | None:
        """Give the folder its name and map it; None if it cannot be written after all."""
        try:
            card = _card({name: file.describe(self.dtypes[name]) for name, file in files.items()})
            (self._folder / _CARD).write_bytes(card)
            home = cache_folder("mapped", _name(card))
            if not _is_whole(home):
                shutil.rmtree(home, ignore_errors=True)
                try:
                    self._folder.rename(home)
                except OSError:
                    if not home.exists():  # else another process with the same data was faster
                        raise
        except OSError as error:
            self._stay_in_memory(error)
            return None
        self._stack.close()
        arrays = Arrays.open(home)
        use_entry(home)
        trim_cache()
        return arrays


class _File:
    """A file that grows, with the hash of all it holds."""

    def __init__(self, stack: ExitStack, path: Path) -> None:
        self.path, self.size, self.digest = path, 0, blake2b(digest_size=32)
        self.raw: IO[bytes] = stack.enter_context(path.open("wb", buffering=0))

    def write(self, piece: NDArray[Any]) -> None:
        """Add an array, all of it or (but for bytes that nobody reads) nothing."""
        left = piece.reshape(-1).view(np.uint8).data
        while len(left):
            left = left[self.raw.write(left) :]
        self.digest.update(piece.data)
        self.size += piece.nbytes

    def read(self, dtype: np.dtype[Any]) -> NDArray[Any]:
        """Return what was written."""
        return np.fromfile(self.path, dtype=dtype, count=self.size // dtype.itemsize)

    def describe(self, dtype: np.dtype[Any]) -> dict[str, Any]:
        """Return the line of the card."""
        return {"dtype": dtype.str, "length": self.size // dtype.itemsize, "blake2b": self.digest.hexdigest()}


# ------------------------------------------------------------------ folders


def _card(arrays: Mapping[str, Mapping[str, Any]]) -> bytes:
    return json.dumps({"version": _VERSION, "arrays": arrays}, sort_keys=True).encode()


def _name(card: bytes) -> str:
    return blake2b(card, digest_size=16).hexdigest()


def _read_card(folder: Path) -> bytes:
    """Return the card of a folder; its name must be that of the folder."""
    card = (folder / _CARD).read_bytes()
    if _name(card) != folder.name:
        raise ValueError(f"{_CARD} is of other data")
    return card


def _lines(folder: Path, card: bytes) -> Iterator[tuple[str, np.dtype[Any], Path, str]]:
    """Yield name, type, file and hash of each array whose file has its size; ValueError if one has not."""
    for name, line in json.loads(card)["arrays"].items():
        dtype, path = np.dtype(line["dtype"]), folder / f"{name}.bin"
        if path.stat().st_size != line["length"] * dtype.itemsize:
            raise ValueError(f"{path.name} has another size")
        yield name, dtype, path, line["blake2b"]


def _map(folder: Path, card: bytes) -> Arrays:
    arrays = {}
    for name, dtype, path, _ in _lines(folder, card):
        if path.stat().st_size == 0:  # cannot be mapped
            arrays[name] = np.empty(0, dtype=dtype)
            continue
        content = map_file(path)
        weakref.finalize(content, _release, hold(folder))  # every view keeps the mapping, and so the folder
        arrays[name] = np.frombuffer(content, dtype=dtype)
    return Arrays(arrays, folder)


def _release(handle: int) -> None:
    if handle >= 0:
        with suppress(OSError):
            os.close(handle)


def _is_whole(folder: Path) -> bool:
    """Return whether a folder exists and every file in it holds what was written."""
    try:
        for _, _, path, wanted in _lines(folder, _read_card(folder)):
            digest = blake2b(digest_size=32)
            with path.open("rb") as stream:
                while block := stream.read(_BLOCK):
                    digest.update(block)
            if digest.hexdigest() != wanted:
                raise ValueError(f"{path.name} changed")
    except FileNotFoundError:
        return False
    except _BROKEN as error:
        notice(f"{folder}: this mapped data is damaged ({error}) and is written again")
        return False
    return True
