"""The log of a run: one JSON object per line; a run can be killed at any byte and resumed."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import orjson

from megalabel.errors import DataError, WriteError
from megalabel.files import make_folder
from megalabel.training.trackers import Guarded, scalars

__all__ = ["RunLog", "read_log"]

_ONLY = "run"  # the phase of a log that names none


class RunLog:
    """Append records to a file such as ``metrics.jsonl``; use it in a ``with`` block.

    Every record starts with its step and is written at once. A new run starts with an empty
    file. With ``resume`` the file is kept, except for an incomplete last line; then call
    :meth:`rewind` with the step of the checkpoint. Write the records of a step before its
    checkpoint. NaN and infinity become null, because JSON has neither. If ``path`` is None
    nothing is written: only rank 0 logs. Each record also goes to ``trackers``.

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

    def __init__(
        self, path: str | PathLike[str] | None, *, resume: bool = False, trackers: Sequence[Guarded] = ()
    ) -> None:
        self.path = path
        self.resume = resume
        self.trackers = trackers
        self._stream: IO[bytes] | None = None

    def __enter__(self) -> Self:
        if self.path is None:
            return self
        path = Path(self.path)
        make_folder(path.parent)
        exists = path.exists()
        size = max((after for _, after in _records(path)), default=0) if self.resume and exists else 0
        try:
            self._stream = path.open("r+b" if exists else "xb", buffering=0)
            self._cut(size)
        except OSError as error:
            raise self._failed(error) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for tracker in self.trackers:
            tracker.call("close", failed=kind is not None and issubclass(kind, Exception))
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def rewind(self, step: int, **match: Any) -> None:
        """Truncate the file before the first record of a later step whose values equal ``match``.

        ``match`` selects one of several phases that each count their steps from 0:
        ``rewind(20, phase="refit")`` keeps the records of earlier phases.
        """
        if self.path is None:
            return
        for tracker in self.trackers:
            tracker.call("begin", match.get("phase", _ONLY), step)
        for record, before in _records(Path(self.path), after=False):
            if record["step"] > step and all(record.get(key) == value for key, value in match.items()):
                self._cut(before)
                return

    def write(self, step: int, **values: Any) -> None:
        """Append one record; values are JSON values, or numbers of numpy or torch."""
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
        for tracker in self.trackers:
            tracker.call("write", values.get("phase", _ONLY), step, scalars(values))

    @property
    def seconds(self) -> float:
        """The seconds of all phases, by their last records."""
        records = [] if self.path is None else read_log(self.path)
        last = {record.get("phase", _ONLY): float(record.get("seconds", 0.0)) for record in records}
        return sum(last.values())

    def flush(self) -> None:
        """Let the trackers write what they have; call it before a checkpoint."""
        for tracker in self.trackers:
            tracker.call("flush")

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
    """Return the records of a log; an incomplete last line is ignored."""
    return [record for record, _ in _records(Path(path))]


def _records(path: Path, *, after: bool = True) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield (record, position after or before its line); an invalid line is an error unless it is the last."""
    try:
        content = path.read_bytes()
    except FileNotFoundError as error:
        raise DataError("no such file", path=path) from error
    except OSError as error:
        raise DataError(f"cannot read this file, {(error.strerror or str(error)).lower()}", path=path) from error
    begin = 0
    lines = list(io.BytesIO(content))
    for number, line in enumerate(lines, start=1):
        end = begin + len(line)
        try:
            record = orjson.loads(line) if line.endswith(b"\n") else None
        except orjson.JSONDecodeError:
            record = None
        if isinstance(record, dict) and isinstance(record.get("step"), int):
            yield record, end if after else begin
        elif number < len(lines):
            what, remedy = "expected a JSON object with a step", "delete the line; one process at a time writes a log"
            raise DataError(what, path=path, line=number, remedy=remedy)
        begin = end


def _number(value: Any) -> Any:
    """Convert a number of numpy or torch to a Python number."""
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"{type(value).__name__} cannot be written to a log")
