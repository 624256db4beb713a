"""Entry point of ``megalabel`` and ``python -m megalabel``: exit code 0 good, 2 the user's mistake, 1 a bug."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; a user's mistake is one line on standard error."""
    from megalabel.cli import app
    from megalabel.errors import MegalabelError

    try:
        code = app(args=None if arguments is None else list(arguments), standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except MegalabelError as error:
        return _say(str(error), 2)
    except KeyboardInterrupt:
        return _say("stopped", 130)
    except BrokenPipeError:  # the reader of our output has gone, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except MemoryError:
        return _say("out of memory; use a smaller set, batch or block", 2)
    except Exception as error:
        if not hasattr(error, "format_message"):  # not one of the command line parser's own
            raise
        context = getattr(error, "ctx", None)
        hint = f"; see {context.command_path} --help" if context is not None else ""
        return _say(" ".join(error.format_message().split()).rstrip(".") + hint, 2)


def _say(line: str, code: int) -> int:
    print(f"megalabel: {line}", file=sys.stderr)  # noqa: T201
    return code


if __name__ == "__main__":
    sys.exit(main())
