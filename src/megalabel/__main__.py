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

    try:
        code = app(args=None if arguments is None else list(arguments), standalone_mode=False)
        if sys.stdout is not None:  # closed by the caller
            sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except MegalabelError as error:
        return _say(str(error), 2)
    except KeyboardInterrupt:
        return _say("stopped", 130)
    except BrokenPipeError:  # the reader of our output has gone, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if _lacks_memory(error):
            return _say(_NO_MEMORY, 2)
        if isinstance(error, OSError) and (error.filename is not None or error.errno == errno.ENOSPC):
            where = "" if error.filename is None else f"{error.filename}: "
            return _say(f"{where}{(error.strerror or str(error)).lower()}", 2)
        if isinstance(error, RuntimeError) and str(error).startswith("Symlink loop"):
            return _say(str(error).lower(), 2)
        if not hasattr(error, "format_message"):  # not one of the command line parser's own
            raise
        context = getattr(error, "ctx", None)
        hint = f"; see {context.command_path} --help" if context is not None else ""
        return _say(" ".join(error.format_message().split()).rstrip(".") + hint, 2)


def _lacks_memory(error: Exception) -> bool:
    """Return whether an error of torch, the system or another library means that there is no more memory."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    text = str(error).lower()
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and any(part in text for part in _MEMORY))


def _say(line: str, code: int) -> int:
    print(f"megalabel: {line}", file=sys.stderr)  # noqa: T201
    return code


if __name__ == "__main__":
    sys.exit(main())
