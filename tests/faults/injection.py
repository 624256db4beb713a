"""Fault injection: the n-th write, flush, rename, new folder, removal or allocation fails, in a forked process.

A writer runs in a child process in which the functions that change a disk are wrapped. Each call is counted under
the name of what it does; the one chosen fails, or kills the process as ``kill -9`` does. The child reports what was
acknowledged through a pipe, so that the parent can compare it with what it finds on the disk afterwards.

The address space of the child can be limited too: then whatever asks for more memory fails, in any library.

What C++ and Rust libraries write is out of reach call by call: `save_file` of safetensors and `write_index` of
faiss count as one write each.
"""

import builtins
import errno
import io
import json
import os
import resource
import signal
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

SECONDS = 60  # after which a child that hangs is ended, and the test fails

# What can go wrong at each operation. A torn write leaves the first half of its bytes.
EFFECTS = {
    "write": ("ENOSPC", "EIO", "torn", "kill", "torn kill"),
    "fsync": ("ENOSPC", "EIO", "kill"),
    "rename": ("ENOSPC", "EIO", "kill"),
    "mkdir": ("ENOSPC", "EIO", "kill"),
    "remove": ("EIO", "kill"),
    "memory": ("MemoryError",),
}


class Fault(NamedTuple):
    """The call that fails, and how."""

    operation: str
    number: int  # from 1; for "address space", the KiB that are left
    effect: str


LIMITS = [Fault("address space", left, "limit") for left in (0, 16, 64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10)]


class Outcome(NamedTuple):
    """What a child did."""

    acknowledged: list[Any]
    calls: dict[str, int]  # how often each operation was called; empty if the child was killed
    error: str | None  # the line a user would see
    traceback: str | None  # of an error that is no line for a user
    killed: bool


class Injector:
    """Wraps the functions that change a disk or take much memory; used in a process that ends afterwards."""

    def __init__(self, fault: Fault | None) -> None:
        self.fault = fault
        self.calls: Counter[str] = Counter()

    def due(self, operation: str) -> str | None:
        """Count a call and return what should happen to it."""
        self.calls[operation] += 1
        if self.fault is not None and self.fault[:2] == (operation, self.calls[operation]):
            return self.fault.effect
        return None

    def fail(self, effect: str) -> None:
        if "kill" in effect:
            os.kill(os.getpid(), signal.SIGKILL)
        if effect == "MemoryError":
            raise MemoryError
        number = errno.EIO if effect == "EIO" else errno.ENOSPC
        raise OSError(number, os.strerror(number))

    def wrap(self, module: Any, name: str, operation: str, tear: Any = None) -> None:
        """Let calls of ``module.name`` count; ``tear`` does the first half of a call."""
        real = getattr(module, name)

        def wrapped(*arguments: Any, **keywords: Any) -> Any:
            effect = self.due(operation)
            if effect is not None:
                if "torn" in effect and tear is not None:
                    tear(real, *arguments, **keywords)
                self.fail(effect)
            return real(*arguments, **keywords)

        setattr(module, name, wrapped)

    def install(self) -> None:
        """Wrap everything."""
        if self.fault is not None and self.fault.operation == "address space":
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            limit = pages * resource.getpagesize() + (self.fault.number << 10)
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
            return
        import faiss
        import numpy as np
        import orjson
        import safetensors.numpy
        import safetensors.torch
        import torch

        import megalabel.disk

        self.wrap(os, "write", "write", lambda real, handle, data: real(handle, data[: len(data) // 2]))
        self.wrap(os, "ftruncate", "write")
        self.wrap(os, "fsync", "fsync")
        self.wrap(os, "rename", "rename")
        self.wrap(os, "replace", "rename")
        self.wrap(megalabel.disk, "exchange", "rename")
        self.wrap(os, "mkdir", "mkdir")
        self.wrap(os, "unlink", "remove")
        self.wrap(os, "rmdir", "remove")
        for module in (safetensors.numpy, safetensors.torch):
            self.wrap(module, "save_file", "write", lambda real, tensors, path: _half(real(tensors, path), path))
        self.wrap(faiss, "write_index", "write", lambda real, index, path: _half(real(index, path), path))
        for module, name in ((np, "concatenate"), (torch, "cat"), (np, "ascontiguousarray"), (orjson, "dumps")):
            self.wrap(module, name, "memory")
        self._wrap_open()

    def _wrap_open(self) -> None:
        real, injector = io.open, self

        class Stream(io.FileIO):
            """A file whose writes count."""

            def write(self, data: Any) -> int:
                effect = injector.due("write")
                if effect is not None:
                    if "torn" in effect:
                        super().write(memoryview(data)[: len(data) // 2])
                    injector.fail(effect)
                return super().write(data) or 0

        def opened(file: Any, mode: str = "r", buffering: int = -1, *arguments: Any, **keywords: Any) -> Any:
            if "b" not in mode or not set(mode) & set("wxa+"):
                return real(file, mode, buffering, *arguments, **keywords)
            stream = Stream(file, mode.replace("b", ""), closefd=keywords.get("closefd", True))
            if buffering == 0:
                return stream
            return (io.BufferedRandom if "+" in mode else io.BufferedWriter)(stream)

        io.open = builtins.open = opened


def _half(_: Any, path: Any) -> None:
    os.truncate(path, Path(path).stat().st_size // 2)


def run(act: Any, fault: Fault | None = None) -> Outcome:
    """Call ``act(acknowledge)`` in a forked process in which a call fails; nothing else of this process changes."""
    from megalabel.__main__ import _lacks_memory
    from megalabel.errors import MegalabelError

    reader, writer = os.pipe()
    send = os.write
    child = os.fork()
    if child == 0:
        os.close(reader)
        signal.alarm(SECONDS)
        injector, result = Injector(fault), {}
        try:
            with suppress(BaseException):
                sys.stderr.flush()
            injector.install()
            act(lambda value: send(writer, json.dumps({"acknowledged": value}).encode() + b"\n"))
        except MegalabelError as error:
            result["error"] = str(error)
        except Exception as error:
            if _lacks_memory(error):
                result["error"] = "out of memory"
            else:
                result["traceback"] = f"{type(error).__name__}: {error}"
        send(writer, json.dumps({"calls": dict(injector.calls), **result}).encode() + b"\n")
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        messages = [json.loads(line) for line in pipe]
    _, status = os.waitpid(child, 0)
    limited = fault is not None and fault.effect == "limit"  # Rust and C++ may abort then
    killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) in {signal.SIGKILL, *([signal.SIGABRT] * limited)}
    assert killed or status == 0, f"the child ended with status {status}"
    end = messages.pop() if messages and "calls" in messages[-1] else {"calls": {}}
    acknowledged = [message["acknowledged"] for message in messages]
    return Outcome(acknowledged, end["calls"], end.get("error"), end.get("traceback"), killed)


def every_fault(act: Any) -> list[Fault]:
    """Return every fault that one undisturbed run of a writer gives an opportunity for."""
    outcome = run(act)
    assert outcome.error is None and outcome.traceback is None, outcome
    return [
        Fault(operation, number, effect)
        for operation, count in sorted(outcome.calls.items())
        for number in range(1, count + 1)
        for effect in EFFECTS[operation]
    ]
