"""The journal of a saved model: label changes on the disk before they are applied, in a few hundred bytes each.

The file ``changes.log`` in a model folder has one line per change::

    <checksum, 16 hex digits> {"sequence":7,"change":"add","uids":["new"],"texts":["a new label"]}

Changes are numbered. The card of the model holds the number of the last change that is part of its files; loading
applies the later ones, which computes the same vectors again from the same texts. Now and then the model is saved
whole (:meth:`Journal.fold`); only changes made meanwhile stay in the journal.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from hashlib import blake2b
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from megalabel.disk import flush_folder, flush_tree
from megalabel.errors import DataError, WriteError

if TYPE_CHECKING:
    from megalabel.model.model import Model

__all__ = ["JOURNAL", "Change", "Journal", "read_changes"]

JOURNAL = "changes.log"
MANY, LARGE = 1_000, 4 << 20  # changes, and bytes of them, after which the model is saved whole
_DIGITS = 16  # of a checksum
_SECTOR = 512  # bytes that a disk writes whole or not at all
_FIELDS = {"add": {"uids": list, "texts": list}, "remove": {"uids": list}, "rename": {"uid": str, "text": str}}


class Change(NamedTuple):
    r"""One change of labels.

    >>> Change("rename", {"uid": "a", "text": "another text"}).line(3)[17:]
    b'{"sequence":3,"change":"rename","uid":"a","text":"another text"}\n'
    """

    kind: str  # add, remove or rename
    values: dict[str, Any]  # uids and texts, uids, or uid and text

    def line(self, sequence: int) -> bytes:
        """Return the line of the journal that records the change."""
        try:
            content = orjson.dumps({"sequence": sequence, "change": self.kind, **self.values})
        except orjson.JSONEncodeError as error:
            raise DataError(f"texts and uids of labels must be valid Unicode ({error})") from error
        return _checksum(content) + b" " + content + b"\n"


class Journal:
    """Binds a model to its folder: every change of its labels is on the disk before it is applied.

    One process at a time may do so (:func:`~megalabel.model.changing.changing`). A change that cannot be written
    raises a WriteError and is not applied.

    Args:
        model: a model as it is in the folder, with all changes that are recorded there.
        folder: the folder of the saved model; a new one is written.
    """

    def __init__(self, model: Model, folder: Path) -> None:
        self.model, self.folder = model, folder
        self.path = folder / JOURNAL
        self.pending = 0  # changes that are in the journal only
        self.size = 0  # bytes of the journal
        self._handle = -1
        self._torn = False  # whether there may be something behind the last whole line
        self._lock = Lock()
        if not folder.exists():
            model.save(folder)
        self._open()
        if model.state.sequence != self._saved() + self.pending:
            self._close()
            raise WriteError("this folder holds another version of the model", path=folder, remedy="load it from there")
        model.live.record = self.append

    def append(self, sequence: int, change: Change) -> None:
        """Write a change to the disk."""
        with self._lock:
            line = change.line(sequence)
            if self._handle < 0:
                self._open()
            self._check_current()
            try:
                if self._torn:
                    self._cut()
                self._torn = True
                _write(self._handle, line, self.size)
                os.fsync(self._handle)
                self._torn = False
            except OSError as error:
                with suppress(OSError):  # tried again before the next change is written
                    self._cut()
                raise self._failed(error) from error
            self.size += len(line)
            self.pending += 1

    def fold(self) -> None:
        """Save the model whole; only changes made meanwhile stay in the journal."""
        from megalabel.model.store import save_model

        with ExitStack() as stack:

            def keep_later_changes(place: Path, saved: int) -> None:
                """Take what was recorded during the save along, and allow no further change until it is in place."""
                flush_tree(place)  # so that changes wait for little
                stack.enter_context(self._lock)
                later = [change.line(number) for number, change in read_changes(self.folder, saved)]
                if later:
                    (place / JOURNAL).write_bytes(b"".join(later))

            if (self.folder / "model.json").exists():
                self._check_current()
            save_model(self.model, self.folder, overwrite=True, texts=True, before_end=keep_later_changes)
            self._open()

    def where(self) -> str:
        """Say how many changes are in the journal only, and where that is."""
        if self._is_current():
            return f"label changes in {self.path}, which is read when the model is loaded: {self.pending:,}"
        return f"label changes lost, because another program removed {self.path}: {self.pending:,}"

    @property
    def due(self) -> bool:
        """Whether so much was recorded that loading would take long without a :meth:`fold`."""
        return self.pending >= MANY or self.size >= LARGE

    def close(self) -> None:
        """Record no further changes."""
        with self._lock:
            self.model.live.record = None
            self._close()

    def _open(self) -> None:
        """Open the journal of the folder as it is now, without a last line that is torn."""
        self._close()
        try:
            exists = self.path.exists()
            lines = list(_lines(self.path))
            self._handle = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
            self.size = lines[-1][2] if lines else 0
            self.pending = sum(number > self._saved() for number, _, _ in lines)
            self._cut()
            if not exists:
                flush_folder(self.folder)
        except OSError as error:
            self._close()
            raise self._failed(error) from error

    def _saved(self) -> int:
        from megalabel.model.store import read_sequence

        return read_sequence(self.folder)

    def _cut(self) -> None:
        """Drop what is behind the last whole line."""
        if os.fstat(self._handle).st_size > self.size:
            os.ftruncate(self._handle, self.size)
            os.fsync(self._handle)
        self._torn = False

    def _check_current(self) -> None:
        """Raise a WriteError unless our journal is that of the folder."""
        if not self._is_current():
            what = "another program has replaced this model"
            raise WriteError(what, path=self.folder, remedy="restart, to change the new model")

    def _is_current(self) -> bool:
        try:
            return self._handle >= 0 and os.path.samestat(os.fstat(self._handle), self.path.stat())
        except OSError:
            return False

    def _close(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
        self._handle = -1

    def _failed(self, error: OSError) -> WriteError:
        reason = (error.strerror or str(error)).lower()
        return WriteError(f"could not record a change of labels, {reason}; nothing was changed", path=self.path)


def read_changes(folder: Path, saved: int) -> list[tuple[int, Change]]:
    """Return the changes of a model folder after the last one that is part of its files, with their numbers.

    A torn last line (see :func:`_is_torn`) was never acknowledged and is left out; anything else that is not as it was
    written is a DataError.
    """
    changes = [(number, change) for number, change, _ in _lines(folder / JOURNAL) if number > saved]
    if changes and changes[0][0] != saved + 1:
        what = f"label changes {saved + 1:,} to {changes[0][0] - 1:,} are missing"
        raise DataError(what, path=folder / JOURNAL, remedy="copy the model again")
    return changes


def _lines(path: Path) -> Iterator[tuple[int, Change, int]]:
    """Yield number and change of every line, and the place where it ends."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return
    except OSError as error:
        raise DataError(f"this file cannot be read, {(error.strerror or str(error)).lower()}", path=path) from error
    end, last = 0, None
    lines = list(io.BytesIO(content))
    for place, line in enumerate(lines, start=1):
        parsed = _parse(line)
        if parsed is None and place == len(lines) and _is_torn(line, end):
            return
        if parsed is None or (last is not None and parsed[0] != last + 1):
            remedy = "copy the model again; or cut the file before this line, and lose the changes from there on"
            raise DataError("this label change was damaged after it was written", path=path, line=place, remedy=remedy)
        end, last = end + len(line), parsed[0]
        yield *parsed, end


def _is_torn(line: bytes, begin: int) -> bool:
    """Say if a last line that begins there is what a kill or a power cut leaves of one that was never acknowledged.

    That is the beginning of a line, or one with sectors that were never written, which read as zeros. A line that is
    there whole, with other bytes, was damaged later.
    """
    if not line.endswith(b"\n"):
        return line[:_DIGITS] != _checksum(line[_DIGITS + 1 : -1])  # else only its end is another byte
    sectors = range(begin - begin % _SECTOR, begin + len(line), _SECTOR)
    return any(not line[max(0, start - begin) : start - begin + _SECTOR].strip(b"\0") for start in sectors)


def _parse(line: bytes) -> tuple[int, Change] | None:
    """Return number and change of a line; None if it is not as it was written."""
    checksum, content = line[:_DIGITS], line[_DIGITS + 1 : -1]
    if not line.endswith(b"\n") or checksum != _checksum(content):
        return None
    try:
        record = orjson.loads(content)
        number, kind = int(record.pop("sequence")), record.pop("change")
        fits = {name: type(value) for name, value in record.items()} == _FIELDS[kind]
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError):
        return None
    return (number, Change(kind, record)) if fits else None


def _checksum(content: bytes) -> bytes:
    return blake2b(content, digest_size=_DIGITS // 2).hexdigest().encode()


def _write(handle: int, content: bytes, place: int) -> None:
    os.lseek(handle, place, os.SEEK_SET)
    while content:
        content = content[os.write(handle, content) :]
