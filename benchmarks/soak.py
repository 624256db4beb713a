"""A soak: `megalabel serve --save` under mixed load, changes of labels, attacks, restarts and kills; all is checked.

Run: python benchmarks/soak.py [--run RUN] [--minutes 10] [--kills 20] [--restarts 4]
Without --run, a model is trained first (--recipe on --data). The server runs on a copy of the model, on 127.0.0.1.
Lives of the server end one by one, by SIGKILL in the middle of changes, by SIGTERM, or by two SIGINT in a row; the
rest of the time is one long life. Every prediction, explanation and list is compared with a model in this process
that follows each acknowledged change. After each end, the next server must have every acknowledged change, and the
one that was under way whole or not at all. Memory is measured in the long life, once its caches are full.

Ends with exit code 1 if a promise is broken: a status of 500, a wrong answer, a lost change, memory that grows.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from _results import write_result
from _server_load import Client
from _soak_load import Load, Log, Texts
from _soak_reference import Reference
from server import memory

PHASE_SECONDS = 4.0
LONG_LIFE_SECONDS = 180.0  # at least, after its warm-up: enough samples of its memory
START_SECONDS = 120.0
WARM_UP_WORDS = 250_000  # more than the tokeniser remembers
GROWTH = 0.02  # of memory, from a warm server to its end
SHIFT = 0.02  # of a score, by a restart


class Server:
    """A `megalabel serve` of its own."""

    def __init__(self, run: Path, errors: Path) -> None:
        command = [sys.executable, "-m", "megalabel", "serve", str(run), "--port", "0", "--device", "cpu", "--save"]
        with errors.open("ab") as stderr:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if "http://127.0.0.1:" not in line:
            raise SystemExit(f"the server did not start: {line} {errors.read_text()[-2000:]}")
        self.port = int(line.partition("http://127.0.0.1:")[2].partition("/")[0])

    def end(self, how: str) -> int:
        """End the server; return its exit code."""
        if how == "two SIGINT":
            self.process.send_signal(signal.SIGINT)
            time.sleep(0.05)
            self.process.send_signal(signal.SIGINT)
        else:
            self.process.send_signal(getattr(signal, how))
        return self.process.wait(START_SECONDS)

    def memory(self) -> float:
        """Return the resident memory in MiB."""
        return memory(self.process.pid)


async def sample(server: Server, sizes: list[float]) -> None:
    """Append the memory of a server every second; between two returns of freed memory to the system it varies."""
    while True:
        await asyncio.sleep(1.0)
        sizes.append(server.memory())


class Soak:
    """The state of the soak over all lives of the server."""

    def __init__(self, run: Path, texts: list[str], errors: Path, seed: int) -> None:
        self.run, self.errors = run, errors
        self.rng = random.Random(seed)
        self.texts = Texts(self.rng, texts)
        self.reference = Reference(run)
        self.statuses: Counter[str] = Counter()
        self.seconds: list[float] = []
        self.broken: list[str] = []
        self.checked = self.dropped = 0
        self.change_pause = 0.3
        self.lives: list[dict[str, Any]] = []

    async def live(self, how: str, seconds: float) -> None:
        """Start a server, put it under load for some seconds, end it in the middle of changes, and check."""
        start = time.perf_counter()
        server = Server(self.run, self.errors)
        life: dict[str, Any] = {"end": how, "start_seconds": time.perf_counter() - start}
        try:
            if self.lives:
                self._check_recovery(await listed(server.port))
            is_last = how == "SIGTERM at the end"
            self.change_pause = 2.0 if is_last else 0.3  # labels take memory: few in the life in which it is measured
            await self._warm_up(server.port, full=is_last)
            end, sizes, phases = time.perf_counter() + seconds, [server.memory()], 0
            sampling = asyncio.create_task(sample(server, sizes))
            while (left := end - time.perf_counter()) > PHASE_SECONDS or not phases:
                await self._phase(server.port, min(PHASE_SECONDS, max(1.0, left)), changing=phases % 2 == 0)
                phases += 1
            sampling.cancel()
            sizes.append(server.memory())
            life |= {"memory_mib": [sizes[0], sizes[-1]], "seconds": seconds, "sizes_mib": sizes}
            await self._end(server, how, life)
        finally:
            if server.process.poll() is None:
                server.process.kill()
                server.process.wait()
        self.lives.append(life)
        print(
            f"life {len(self.lives)}: {how}, exit code {life['exit_code']}, {sum(self.statuses.values()):,} requests, "
            f"{self.reference.changes:,} changes so far, memory {sizes[0]:.0f} to {sizes[-1]:.0f} MiB, "
            f"{len(self.broken)} promises broken",
            flush=True,
        )

    async def _end(self, server: Server, how: str, life: dict[str, Any]) -> None:
        """End the server while labels change."""
        load = self._load(server.port, 20.0)
        clients = asyncio.create_task(load.run(load.change, load.predict, load.predict))
        await asyncio.sleep(self.rng.uniform(0.3, 2.5))
        life["exit_code"] = await asyncio.to_thread(server.end, how.removesuffix(" at the end"))
        load.end = 0
        self._take(await clients)
        wanted = -signal.SIGKILL if how == "SIGKILL" else 0
        if life["exit_code"] != wanted:
            self.broken.append(f"after {how}, the exit code was {life['exit_code']}")

    async def _warm_up(self, port: int, *, full: bool) -> None:
        client = Client("127.0.0.1", port)
        for _ in range(WARM_UP_WORDS // 10_000 if full else 2):
            await client.call("POST", "/predict", {"texts": [self.texts.words(10_000)]})
        for _ in range(10 if full else 1):
            await client.call("POST", "/predict", {"texts": [self.texts.one(100_000) for _ in range(60)], "k": 100})
        for changing in (True, False) * (2 if full else 0):
            await self._phase(port, PHASE_SECONDS, changing=changing)

    async def _phase(self, port: int, seconds: float, *, changing: bool) -> None:
        load = self._load(port, seconds)
        load.change_pause = self.change_pause
        self.reference.changing = changing
        kinds = [load.change] if changing else [load.explain]
        log = await load.run(*kinds, load.predict, load.predict, load.predict, load.read, load.attack, load.misbehave)
        if log.dropped:
            self.broken.append(f"{log.dropped} connections of valid clients were dropped while the server ran")
        self._take(log)

    def _load(self, port: int, seconds: float) -> Load:
        return Load(port, self.reference, self.texts, self.rng, seconds)

    def _take(self, log: Log) -> None:
        self.statuses += log.statuses
        self.seconds += log.seconds
        self.broken += log.broken
        self.broken += self.reference.errors(log.asked)
        self.checked += len(log.asked)
        self.dropped += log.dropped
        if self.reference.latest == self.reference.version:
            self.reference.forget_past()

    def _check_recovery(self, served: dict[str, str]) -> None:
        recovery = self.reference.recover(served, self.rng.sample(self.texts.known, 20))
        life = self.lives[-1]
        life |= {"lost": recovery.lost, "half_applied": recovery.half_applied, "survived": recovery.survived}
        life["score_shift"] = recovery.shift
        if recovery.lost:
            self.broken.append(f"after {life['end']}, {recovery.lost} labels were not as acknowledged")
        if recovery.shift > SHIFT:
            self.broken.append(f"after {life['end']}, a score differs by {recovery.shift:.4f}")
        if recovery.half_applied:
            self.broken.append(f"after {life['end']}, a change without an answer was applied by half")

    async def check_end(self) -> None:
        """Check what the last life left on disk."""
        server = Server(self.run, self.errors)
        try:
            self._check_recovery(await listed(server.port))
        finally:
            server.end("SIGTERM")


async def listed(port: int) -> dict[str, str]:
    """Return all labels of a server: uid to text."""
    client, labels = Client("127.0.0.1", port), dict[str, str]()
    while True:
        _, page = await client.call("GET", f"/labels?limit=1000&offset={len(labels)}")
        labels |= {label["uid"]: label["text"] for label in page["labels"]}
        if not page["labels"] or len(labels) >= page["total"]:
            return labels


async def soak(state: Soak, minutes: float, kills: int, restarts: int) -> None:
    """Run all lives: short ones, in half of the time at most, then a long one."""
    stop = time.perf_counter() + 60 * minutes
    ends = ["SIGKILL"] * kills + [("SIGTERM", "two SIGINT")[index % 2] for index in range(restarts)]
    state.rng.shuffle(ends)
    for index, how in enumerate(ends):
        left = stop - time.perf_counter()
        await state.live(how, seconds=max(2.0, 0.5 * left / (len(ends) - index)))
    await state.live("SIGTERM at the end", seconds=max(LONG_LIFE_SECONDS, stop - time.perf_counter()))
    await state.check_end()


def report(state: Soak, minutes: float) -> dict[str, Any]:
    """Return what was measured; memory that grows in the long life is a broken promise."""
    sizes = state.lives[-1]["sizes_mib"]
    third = max(1, len(sizes) // 3)
    warm, last = float(np.median(sizes[:third])), float(np.median(sizes[-third:]))
    if last > (1 + GROWTH) * warm:
        state.broken.append(f"memory grew from {warm:.0f} to {last:.0f} MiB")
    p50, p99 = np.percentile(state.seconds, [50, 99])
    by_kind = {
        kind: {key.split(" ", 1)[1]: count for key, count in sorted(state.statuses.items()) if key.startswith(kind)}
        for kind in ("predict", "explain", "read", "change", "attack", "misbehave")
    }
    server_errors = sum(count for key, count in state.statuses.items() if key.rpartition(" ")[2] in ("500", "502"))
    return {
        "minutes": minutes,
        "requests": sum(state.statuses.values()),
        "statuses": by_kind,
        "server_errors": server_errors,
        "answers_compared": state.checked,
        "p50_ms": 1e3 * float(p50),
        "p99_ms": 1e3 * float(p99),
        "changes": state.reference.changes,
        "change_p50_ms": float(np.median(state.reference.milliseconds)),
        "ends": dict(Counter(life["end"].removesuffix(" at the end") for life in state.lives)),
        "lost_changes": sum(life.get("lost", 0) for life in state.lives),
        "half_applied": sum(life.get("half_applied", False) for life in state.lives),
        "score_shift": max(life.get("score_shift", 0.0) for life in state.lives),
        "memory_mib": {
            "start": warm,
            "end": last,
            "growth": last / warm - 1,
            "seconds": state.lives[-1]["seconds"],
            "sizes": sizes,
        },
        "broken": state.broken[:50],
        "lives": [{key: value for key, value in life.items() if key != "sizes_mib"} for life in state.lives],
    }


def main() -> int:
    """Run the soak and write results/soak.json."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", type=Path, help="a trained run; default: train one")
    parser.add_argument("--recipe", default="auto")
    parser.add_argument("--data", default="pydocs")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--restarts", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ["MEGALABEL_PROGRESS"] = "0"
    import torch

    import megalabel as ml

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        run, errors = Path(folder) / "run", Path(folder) / "stderr"
        data = ml.load(options.data)
        if options.run is None:
            ml.train(options.recipe, data, run, seed=0)
        else:
            shutil.copytree(options.run, run)
        state = Soak(run, list(data.test.texts)[:500], errors, options.seed)
        asyncio.run(soak(state, options.minutes, options.kills, options.restarts))
        log = errors.read_text()
        if "Traceback" in log:
            print(log[log.index("Traceback") :][:2000])
            state.broken.append("a traceback in the log of the server")
        model = state.reference.model
        document = {
            "model": model.recipe.name, "data": options.data, "labels": model.state.alive,
            "seed": options.seed, "threads": os.environ["OMP_NUM_THREADS"], **report(state, options.minutes),
        }  # fmt: skip
    for line in state.broken[:20]:
        print(f"BROKEN: {line}")
    print({key: document[key] for key in ("requests", "server_errors", "p50_ms", "p99_ms", "changes", "lost_changes")})
    print(document["memory_mib"], document["statuses"])
    write_result("soak", document, "torch", "fastapi", "uvicorn", "httptools", out=options.out)
    return 1 if state.broken else 0


if __name__ == "__main__":
    sys.exit(main())
