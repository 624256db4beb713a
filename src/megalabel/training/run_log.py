"""The log of a run: one JSON object per line, safe to cut off and to go on with."""

from __future__ import annotations

from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import orjson

from megalabel.errors import DataError, WriteError
from megalabel.files import make_folder

__all__ = ["RunLog", "read_log"]


class RunLog:
    """Append records to a file such as ``metrics.jsonl``; use it in a ``with`` block.

    Every record starts with its step and goes to the file at once. A new run starts an
    empty file. With ``resume`` the file is kept, but for a last line that a crash left
    half written; then :meth:`rewind` to the step of the checkpoint the run goes on from.
    Write the records of a step before its checkpoint. NaN and infinity are written as
    null, which is all that JSON has. Without a path nothing is written: only one of several ranks logs.

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "metrics.jsonl"
    >>> with RunLog(path) as log:
    ...     for step in (10, 20, 30):
    ...         log.write(step, loss=1 / step)
    >>> with RunLog(path, resume=True) as log:
    ...     log.rewind(20)
    ...     log.write(30, loss=0.5)
    >>> [(record["step"], record["loss"]) for record in read_log(path)]
    [(10, 0.1), (20, 0.05), (30, 0.5)]
    """

    def __init__(self, path: str | PathLike[str] | None, *, resume: bool = False) -> None:
        self.path = path
        self.resume = resume
        self._stream: IO[bytes] | None = None

    def __enter__(self) -> Self:
        if self.path is None:
            return self
        path = Path(self.path)
        make_folder(path.parent)
        found = path.exists()
        whole = max((after for _, after in _records(path)), default=0) if self.resume and found else 0
        try:
            self._stream = path.open("r+b" if found else "xb", buffering=0)
            self._cut(whole)
        except OSError as error:
            raise self._failed(error) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def rewind(self, step: int, **where: Any) -> None:
        """Cut the file before the first record of a later step that has all values of ``where``.

        Stages of a run that each count their steps from the start are told apart by
        ``where``: ``rewind(20, phase="refit")`` leaves the records of other phases before it.
        """
        if self.path is None:
            return
        for record, before in _records(Path(self.path), after=False):
            if record["step"] > step and all(record.get(key) == value for key, value in where.items()):
                self._cut(before)
                return

    def write(self, step: int, **values: Any) -> None:
        """Append one record; values are JSON-able, or numbers of numpy or torch."""
        if self.path is None:
            return
        stream = self._opened()
        line = orjson.dumps({"step": step, **values}, default=_number, option=orjson.OPT_APPEND_NEWLINE)
        begin = stream.tell()
        try:
            done = 0
            while done < len(line):
                done += stream.write(line[done:])
        except OSError as error:
            self._cut(begin)
            raise self._failed(error) from error

    def _cut(self, size: int) -> None:
        stream = self._opened()
        stream.truncate(size)
        stream.seek(size)

    def _opened(self) -> IO[bytes]:
        if self._stream is None:
            raise RuntimeError("use the log in a with block")
        return self._stream

    def _failed(self, error: OSError) -> WriteError:
        return WriteError(f"could not write the log, {(error.strerror or str(error)).lower()}", path=self.path)


def read_log(path: str | PathLike[str]) -> list[dict[str, Any]]:
    """Return the records of a log, without a last line that is half written."""
    return [record for record, _ in _records(Path(path))]


def _records(path: Path, *, after: bool = True) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield (record, position after or before its line); a broken line is an error unless it is the last."""
    try:
        content = path.read_bytes()
    except FileNotFoundError as error:
        raise DataError("no such file", path=path) from error
    except OSError as error:
        raise DataError(f"this file cannot be read, {(error.strerror or str(error)).lower()}", path=path) from error
    begin = 0
    lines = content.splitlines(keepends=True)
    for number, line in enumerate(lines, start=1):
        end = begin + len(line)
        try:
            record = orjson.loads(line) if line.endswith(b"\n") else None
        except orjson.JSONDecodeError:
            record = None
        if isinstance(record, dict) and isinstance(record.get("step"), int):
            yield record, end if after else begin
        elif number < len(lines):
            raise DataError("a JSON object with a step was expected", path=path, line=number)
        begin = end


def _number(value: Any) -> Any:
    """Turn a number of numpy or torch into a plain one."""
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"{type(value).__name__} cannot be written to a log")
