"""The load of the server benchmark, as a separate process: python _server_load.py PORT REQUEST."""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

K = 5
TOLERANCE = 2e-5  # scores of a text alone and in a batch differ by rounding


class Client:
    """One persistent connection."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port
        self.reader: asyncio.StreamReader | None = None

    async def call(self, method: str, path: str, document: Any = None, *, decode: bool = True) -> tuple[int, Any]:
        """Send a request and return its status and answer, by default as JSON."""
        if self.reader is None:
            self.reader, self.writer = await asyncio.open_connection(self.host, self.port, limit=1 << 22)
        body = b"" if document is None else json.dumps(document).encode()
        self.writer.write(
            f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
        body = await self.reader.readexactly(length)
        return int(head.split(b" ", 2)[1]), json.loads(body) if decode else body


def find_error(labels: list[dict[str, Any]], expected: list[list[Any]], added: dict[str, str]) -> str | None:
    """Return what is wrong with an answer, or None; it may contain labels that another client adds meanwhile."""
    for label in labels:
        if label["uid"] in added and label["text"] != added[label["uid"]]:
            return f"label {label['uid']} with the text {label['text']!r}"
    if len(labels) != K:
        return f"{len(labels)} labels"
    trained = [label for label in labels if label["uid"] not in added]
    for label, (uid, text, score) in zip(trained, expected, strict=False):
        ties = [text for _, text, other in expected if abs(other - label["score"]) <= TOLERANCE]  # in any order
        if abs(label["score"] - score) > TOLERANCE or (label["uid"] != uid and label["text"] not in ties):
            return f"{label} instead of {(uid, text, score)}"
    return None


async def predict(client: Client, seed: int, reference: dict[str, Any], end: float, log: dict[str, Any]) -> None:
    """Send single texts, one after the other, until the end."""
    rng = random.Random(seed)
    texts, expected = reference["texts"], reference["predictions"]
    while (start := time.perf_counter()) < end:
        index = rng.randrange(len(texts))
        try:
            status, answer = await client.call("POST", "/predict", {"texts": [texts[index]], "k": K})
        except (OSError, asyncio.IncompleteReadError) as failure:
            log["errors"].append(repr(failure))
            return
        log["seconds"].append(time.perf_counter() - start)
        if status != 200:
            log["errors"].append(f"{status} {answer}")
        elif (error := find_error(answer["predictions"][0], expected[index], log["added"])) is not None:
            log["wrong"].append(error)


async def predict_many(client: Client, reference: dict[str, Any], end: float, log: dict[str, Any]) -> None:
    """Send requests of a thousand texts until the end."""
    indices = [index % len(reference["texts"]) for index in range(1000)]
    body = {"texts": [reference["texts"][index] for index in indices], "k": K}
    while time.perf_counter() < end:
        status, answer = await client.call("POST", "/predict", body)
        rows = answer.get("predictions", [])
        if status != 200 or len(rows) != len(indices):
            log["errors"].append(f"{status} {answer.get('error')}")
            continue
        pairs = zip(indices, rows, strict=True)
        errors = (find_error(row, reference["predictions"][index], log["added"]) for index, row in pairs)
        log["wrong"] += [error for error in errors if error is not None]
        log["large"] += 1


async def change_labels(client: Client, texts: list[str], end: float, log: dict[str, Any]) -> None:
    """Add a label, predict it, remove it and check that it is gone, until the end."""
    while time.perf_counter() < end:
        text = texts[log["changes"] % len(texts)]
        uid = f"new-{os.getpid()}-{log['changes']}"
        log["added"][uid] = text
        request = {"texts": [text], "k": 1, "heads": "dual"}
        start = time.perf_counter()
        added, _ = await client.call("POST", "/labels", {"texts": [text], "uids": [uid]})
        log["change_seconds"].append(time.perf_counter() - start)
        _, before = await client.call("POST", "/predict", request)
        removed, _ = await client.call("DELETE", f"/labels/{uid}")
        _, after = await client.call("POST", "/predict", request)
        if (added, removed) != (201, 200):
            log["errors"].append(f"changing labels: {added}, {removed}")
        if before["predictions"][0][0]["uid"] != uid or after["predictions"][0][0]["uid"] == uid:
            log["wrong"].append(f"label {uid} was missing after it was added, or predicted after it was removed")
        log["changes"] += 1
        await asyncio.sleep(0.05)


async def load(host: str, port: int, request: dict[str, Any]) -> dict[str, Any]:
    """Run all clients and return what they measured."""
    reference = json.loads(Path(request["expected"]).read_text())
    log: dict[str, Any] = {
        "seconds": [], "change_seconds": [], "errors": [], "wrong": [], "changes": 0, "large": 0, "added": {}
    }  # fmt: skip
    start = time.perf_counter()
    end = start + request["seconds"]
    clients = [Client(host, port) for _ in range(request["clients"])]
    work = [predict(client, seed, reference, end, log) for seed, client in enumerate(clients)]
    if request["change"]:
        work.append(change_labels(Client(host, port), reference["new_labels"], end, log))
    if request["large"]:
        work.append(predict_many(Client(host, port), reference, end, log))
    await asyncio.gather(*work)
    seconds = time.perf_counter() - start
    if not log["seconds"]:
        raise SystemExit(f"no answers: {log['errors'][:3]}")
    millis = 1e3 * np.array(log["seconds"])
    return {
        "clients": request["clients"],
        "seconds": seconds,
        "requests": len(millis),
        "per_second": len(millis) / seconds,
        "p50_ms": float(np.percentile(millis, 50)),
        "p99_ms": float(np.percentile(millis, 99)),
        "max_ms": float(millis.max()),
        "errors": len(log["errors"]),
        "wrong": len(log["wrong"]),
        "first_troubles": (log["errors"] + log["wrong"])[:5],
        "labels_changed": log["changes"],
        "large_requests": log["large"],
        "add_p50_ms": float(1e3 * np.median(log["change_seconds"])) if log["change_seconds"] else None,
    }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(load("127.0.0.1", int(sys.argv[1]), json.loads(sys.argv[2])))))
