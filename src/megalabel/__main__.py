"""Entry point of ``megalabel`` and ``python -m megalabel``: exit code 0 good, 2 the user's mistake, 1 a bug."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence

__all__ = ["main"]

_NO_MEMORY = (
    "out of memory; set a smaller batching.batch_size, training.chunk_size or encoder, use a smaller set, or see "
    "megalabel plan"
)
_MEMORY = ("can't allocate memory", "cannot allocate memory", "out of memory", "bad_alloc", "can't start new thread")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; a user's mistake is one line on standard error."""
    from megalabel.cli import app
    from megalabel.errors import MegalabelError

    _open_missing_streams()
    _quieten_torch()
    if not _has_folder():  # torch cannot be loaded there
        return _say("the current folder was removed; change to one that exists", 2)
    try:
        code = app(args=None if arguments is None else list(arguments), standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except SystemExit as error:
        if not isinstance(error.__context__, BrokenPipeError):
            raise
        return _drop_output()  # so do the parser and the tables of the command line
    except MegalabelError as error:
        return _say(str(error), 2)
    except KeyboardInterrupt:
        return _say("stopped", 130)
    except BrokenPipeError:  # the reader of our output has gone, as `| head` does
        return _drop_output()
    except Exception as error:
        if _lacks_memory(error):
            return _say(_NO_MEMORY, 2)
        if isinstance(error, OSError) and (error.filename is not None or error.errno == errno.ENOSPC):
            where = "" if error.filename is None else f"{error.filename}: "
            _drop_output()  # else Python tries again to print it when it ends
            return _say(f"{where}{(error.strerror or str(error)).lower()}", 2)
        if isinstance(error, RuntimeError) and str(error).startswith("Symlink loop"):
            return _say(str(error).lower(), 2)
        if not hasattr(error, "format_message"):  # not one of the command line parser's own
            raise
        context = getattr(error, "ctx", None)
        hint = f"; see {context.command_path} --help" if context is not None else ""
        line = " ".join(error.format_message().split()).replace(": Value error, ", ": ").rstrip(".")
        return _say(line + hint, 2)


def _lacks_memory(error: Exception) -> bool:
    """Return whether an error of torch, the system or another library means that there is no more memory."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    text = str(error).lower()
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and any(part in text for part in _MEMORY))


def _has_folder() -> bool:
    """Say if the current folder exists."""
    try:
        os.getcwd()  # noqa: PTH109
    except FileNotFoundError:
        return False
    return True


def _quieten_torch() -> None:
    """Keep torch, which is loaded later, from telling of a lost rank in a page: we do so in one line."""
    if os.environ.get("WORLD_SIZE", "1") != "1":
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")


def _open_missing_streams() -> None:
    """Give a place to what is printed where the caller has closed standard output or standard error."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115


def _drop_output() -> int:
    """Let what is still to be printed vanish, because its reader has gone."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    return 0


def _say(line: str, code: int) -> int:
    try:
        print(f"megalabel: {line}", file=sys.stderr, flush=True)  # noqa: T201
    except OSError:  # a reader that has gone, a full disk: the exit code is all that is left
        _drop_output()
    return code


if __name__ == "__main__":
    sys.exit(main())
