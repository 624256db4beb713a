"""The clients of the soak: ordinary requests, changes of labels, attacks, and clients that misbehave."""

from __future__ import annotations

import asyncio
import base64
import json
import random
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from _server_load import Client
from _soak_reference import Asked, Reference

CONNECTION_ERRORS = (OSError, asyncio.IncompleteReadError, EOFError)
SCRIPTS = {
    "Chinese": "的一是了我不人在他有这个上们来到时大地为子中你说生国年着就那和要她出也得里后自以会",
    "Thai": "กขคงจฉชซญดตถทนบปผพฟมยรลวสหอะาิีึืุูเแโใไ่้",
    "Arabic": "ابتثجحخدذرزسشصضطظعغفقكلمنهوي",
    "emoji": "😀😁😂🤣😃🚀🌍🔥💡📚🧪🎯👩🔬",
    "Latin": "abcdefghijklmnopqrstuvwxyz",
}
HEAD = "Host: localhost\r\nContent-Type: application/json\r\n"
VALID = b'{"texts": ["a"], "k": 1}'


def _post(body: bytes, *lines: str, path: str = "/predict") -> bytes:
    more = "".join(f"{line}\r\n" for line in lines)
    return f"POST {path} HTTP/1.1\r\n{HEAD}{more}Content-Length: {len(body)}\r\n\r\n".encode("latin-1") + body


def _raw(*lines: str, rest: bytes = b"") -> bytes:
    return "".join(f"{line}\r\n" for line in ("POST /predict HTTP/1.1", HEAD[:-2], *lines, "")).encode("latin-1") + rest


SECOND = b"GET /model HTTP/1.1\r\nHost: localhost\r\n\r\n"  # must not be answered when smuggled
# What is sent, and the statuses that answer it; every connection is closed by the client or the server.
ATTACKS: list[tuple[bytes, tuple[int, ...]]] = [
    (_post(b"{"), (400,)),
    (_post(b""), (422,)),
    (_post(b"[" * 100_000), (400,)),
    (_post(b'{"texts": [' * 50_000), (400,)),
    (_post(b'{"texts": "a"}'), (422,)),
    (_post(b'{"texts": [1]}'), (422,)),
    (_post(b'{"texts": ["a"], "k": 0}'), (422,)),
    (_post(b'{"texts": ["a"], "k": -1}'), (422,)),
    (_post(b'{"texts": ["a"], "k": 1e9}'), (422,)),
    (_post(b'{"texts": ["a"], "k": %s}' % (b"9" * 6_000)), (400, 422)),
    (_post(b'{"texts": ["a"], "k": NaN}'), (400,)),
    (_post(b'{"texts": ["a"], "tail": 2}'), (422,)),
    (_post(b'{"texts": ["\xff\xfe"]}'), (400,)),
    (_post(b'{"texts": ["\\ud800"]}'), (400,)),
    (_post(b'{"texts": ["a"], "heads": "no such head"}'), (422,)),
    (_post(b'{"texts": ["a"], "textes": 1}'), (422,)),
    (_post(b'{"texts": ["%s"]}' % (b"a" * 100_001)), (422,)),
    (_post(json.dumps({"texts": ["a"] * 1_001}).encode()), (422,)),
    (_post(b'{"texts": ["x"], "uids": ["a\\nb"]}', path="/labels"), (422,)),
    (_post(b'{"texts": [" "]}', path="/labels"), (422,)),
    (_post(b'{"text": "a", "label": "no such label"}', path="/explain"), (404,)),
    (b"DELETE /labels/no-such-label HTTP/1.1\r\nHost: localhost\r\n\r\n", (404,)),
    (b"GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n", (404,)),
    (b"GET /page/../../server.py HTTP/1.1\r\nHost: localhost\r\n\r\n", (404,)),
    (b"GET /page/%2e%2e/%2e%2e/%2e%2e/etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n", (404,)),
    (b"PUT /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n", (405,)),
    (b"GET /model HTTP/1.1\r\nHost: evil.example\r\n\r\n", (403,)),
    (b"GET /model HTTP/1.1\r\n\r\n", (403,)),
    (b"hello\r\n\r\n", (400,)),
    (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", (400,)),
    (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", (400,)),
    (b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + b"X: " + b"a" * 70_000 + b"\r\n\r\n", (431,)),
    (b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + b"a:b\r\n" * 20_000 + b"\r\n", (431,)),
    (_raw("Content-Length: 5", "Transfer-Encoding: chunked", rest=b"0\r\n\r\n" + SECOND), (400,)),
    (_raw("Content-Length: 5", "Content-Length: 50", rest=b"0\r\n\r\n" + SECOND), (400,)),
    (_raw("Transfer-Encoding: xchunked", rest=b"0\r\n\r\n" + SECOND), (400,)),
    (_raw("Transfer-Encoding : chunked", rest=b"0\r\n\r\n" + SECOND), (400,)),
    (_raw("X: a\nTransfer-Encoding: chunked", rest=b"0\r\n\r\n" + SECOND), (400,)),
    (_raw("Transfer-Encoding: chunked", rest=b"5\n{}   \r\n0\r\n\r\n" + SECOND), (400,)),
    (_raw("Transfer-Encoding: chunked", rest=b"ffffffffffffffffff\r\n" + SECOND), (400,)),
    (_raw("Transfer-Encoding: chunked", rest=b"0\r\nX: " + b"a" * 200_000), (431,)),
    (_raw("Transfer-Encoding: chunked", rest=b"1;" + b"a" * 200_000), (431,)),
    (_post(SECOND, "Connection: Upgrade", "Upgrade: h2c", "Connection: close"), (400,)),
    (_raw(f"Content-Length: {1 << 40}"), (413,)),
]


@dataclass
class Log:
    """What the clients of one phase saw."""

    statuses: Counter[str] = field(default_factory=Counter)  # "kind status"
    seconds: list[float] = field(default_factory=list)  # of answered predictions
    broken: list[str] = field(default_factory=list)  # promises
    asked: list[Asked] = field(default_factory=list)  # answers to compare with the reference
    dropped: int = 0  # connections, when the server was stopped

    def count(self, kind: str, status: int) -> None:
        """Count an answer; anything above 499 is a broken promise, but for an honest 503 or 504."""
        self.statuses[f"{kind} {status}"] += 1
        if status >= 500 and status not in (503, 504):
            self.broken.append(f"{kind} was answered {status}")


class Texts:
    """Makes texts of many kinds: of the data, and random ones in scripts with and without spaces."""

    def __init__(self, rng: random.Random, known: list[str]) -> None:
        self.rng, self.known = rng, known

    def one(self, longest: int = 20_000) -> str:
        """Return a text."""
        if self.rng.random() < 0.5:
            return self.rng.choice(self.known)
        size = int(10 ** self.rng.uniform(0, len(str(longest)) - 1))
        if self.rng.random() < 0.15:
            return base64.b64encode(self.rng.randbytes(size)).decode()[:size]
        script, letters = self.rng.choice(list(SCRIPTS.items()))
        spaced = script in ("Latin", "Arabic")
        return "".join(" " if spaced and self.rng.random() < 0.15 else self.rng.choice(letters) for _ in range(size))

    def words(self, count: int) -> str:
        """Return a text of random words."""
        return " ".join("".join(self.rng.choices(SCRIPTS["Latin"], k=9)) for _ in range(count))


class Load:
    """All clients of one phase; each runs until the phase ends or the server is gone."""

    def __init__(self, port: int, reference: Reference, texts: Texts, rng: random.Random, seconds: float) -> None:
        self.port, self.reference, self.texts, self.rng = port, reference, texts, rng
        self.end = time.perf_counter() + seconds
        self.change_pause = 0.01  # seconds at most between two changes of labels
        self.log = Log()

    @property
    def going(self) -> bool:
        """Whether the phase goes on."""
        return time.perf_counter() < self.end

    async def run(self, *clients: Callable[[], Any]) -> Log:
        """Run clients at the same time."""
        await asyncio.gather(*(self._run(client) for client in clients))
        return self.log

    async def _run(self, client: Callable[[], Any]) -> None:
        try:
            await client()
        except CONNECTION_ERRORS:
            self.log.dropped += 1
            self.end = 0

    async def predict(self) -> None:
        """Predict single texts and batches, with all options."""
        client = Client("127.0.0.1", self.port)
        while self.going:
            count = 1 if self.rng.random() < 0.8 else self.rng.randint(2, 40)
            longest = 100_000 if self.rng.random() < 0.02 else 2_000
            body: dict[str, Any] = {
                "texts": [self.texts.one(longest) for _ in range(count)],
                "k": self.rng.randint(1, 8),
            }
            if self.rng.random() < 0.3:
                body["heads"] = self.rng.choice(["all", *self.reference.model.heads])
            first, start = self.reference.version, time.perf_counter()
            status, answer = await client.call("POST", "/predict", body)
            self.log.seconds.append(time.perf_counter() - start)
            self.log.count("predict", status)
            if status == 200:
                rows = answer["predictions"]
                self.log.asked.append(Asked(body, first, self.reference.latest, rows))
            elif status not in (429, 503, 504):
                self.log.broken.append(f"a valid prediction was answered {status}: {answer}")
            await asyncio.sleep(self.rng.uniform(0, 0.02))

    async def explain(self) -> None:
        """Explain labels; only while no label changes."""
        client = Client("127.0.0.1", self.port)
        while self.going:
            body = {"text": self.texts.one(500), "k": self.rng.randint(1, 5)}
            if self.rng.random() < 0.5:
                body["label"] = self.reference.any_uid(self.rng)
            status, answer = await client.call("POST", "/explain", body)
            self.log.count("explain", status)
            if status == 200:
                error = self.reference.explain_error(body, answer)
                if error is not None:
                    self.log.broken.append(error)
            await asyncio.sleep(self.rng.uniform(0, 0.2))

    async def read(self) -> None:
        """Ask for health, metrics, the model and lists of labels; lists are compared while no label changes."""
        client = Client("127.0.0.1", self.port)
        while self.going:
            path = self.rng.choice(["/health", "/metrics", "/model", "/labels?limit=20", "/labels?find=a&limit=5"])
            status, answer = await client.call("GET", path, decode=path != "/metrics")
            self.log.count("read", status)
            if path == "/labels?limit=20" and status == 200 and not self.reference.changing:
                listed = [(label["uid"], label["text"]) for label in answer["labels"]]
                if listed != list(self.reference.labels().items())[:20]:
                    self.log.broken.append("a list of labels differs from the model's")
            await asyncio.sleep(self.rng.uniform(0, 0.1))

    async def change(self) -> None:
        """Add, rename and remove labels, one request at a time; the reference follows each acknowledged change."""
        client = Client("127.0.0.1", self.port)
        while self.going:
            change = self.reference.next_change(self.rng, self.texts)
            self.reference.started(change)
            start = time.perf_counter()
            status, answer = await client.call(*change.request)
            self.log.count("change", status)
            if status in (200, 201):
                self.reference.acknowledged(change, 1e3 * (time.perf_counter() - start))
            elif status in (429, 503):
                self.reference.refused()
            else:
                self.log.broken.append(f"a valid change of labels was answered {status}: {answer}")
                self.reference.refused()
            await asyncio.sleep(self.rng.uniform(0, self.change_pause))

    async def attack(self) -> None:
        """Send broken, oversized and ambiguous requests; each gets one answer, of the expected status."""
        while self.going:
            sent, expected = self.rng.choice(ATTACKS)
            received = await self._exchange(sent)
            answers = [int(part[:3]) for part in received.split(b"HTTP/1.1 ")[1:]]
            self.log.count("attack", answers[0] if answers else 0)
            if len(answers) > 1 or (answers and answers[0] not in (*expected, 429, 503)):
                self.log.broken.append(f"{sent[:80]!r} was answered {answers}, not {expected}")
            await asyncio.sleep(self.rng.uniform(0, 0.1))

    async def _exchange(self, sent: bytes) -> bytes:
        """Send bytes, end the sending side after the answer began, and return all that comes back."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 20)
        received = b""
        with suppress(ConnectionError):
            writer.write(sent)
            await writer.drain()
            async with asyncio.timeout(30):
                received = await reader.read(1 << 16)
            with suppress(TimeoutError):
                async with asyncio.timeout(0.05):  # for an answer too many
                    received += await reader.read(1 << 16)
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
        return received

    async def misbehave(self) -> None:
        """Send slowly, hang up in the middle, read nothing, or flood a connection with pipelined requests."""
        whole = _post(json.dumps({"texts": [self.texts.one() for _ in range(20)], "k": 50}).encode())
        while self.going:
            _, writer = await asyncio.open_connection("127.0.0.1", self.port)
            kind = self.rng.choice(["hang up", "slow", "deaf", "flood", "silent", "large"])
            with suppress(ConnectionError):
                if kind == "slow":
                    for place in range(0, min(len(whole), 400), 20):
                        writer.write(whole[place : place + 20])
                        await asyncio.sleep(0.01)
                elif kind == "flood":
                    writer.write(_post(VALID) * 200)
                elif kind == "large":
                    writer.write(_raw("Transfer-Encoding: chunked", rest=(b"10000\r\n" + b" " * 65_536 + b"\r\n") * 40))
                elif kind != "silent":
                    writer.write(whole if kind == "deaf" else whole[: self.rng.randrange(len(whole))])
                await asyncio.sleep(self.rng.uniform(0, 0.3))
            self.log.statuses[f"misbehave {kind}"] += 1
            writer.transport.abort()
