"""The load of the server benchmark, as a process of its own: python _server_load.py PORT REQUEST."""

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
CLOSE = 2e-5  # scores of one text alone and in a batch differ by rounding


class Client:
    """One connection that is kept open."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port
        self.reader: asyncio.StreamReader | None = None

    async def call(self, method: str, path: str, document: Any = None) -> tuple[int, Any]:
        """Send a request and return status and answer."""
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
        return int(head.split(b" ", 2)[1]), json.loads(await self.reader.readexactly(length))


def wrong(found: list[dict[str, Any]], expected: list[list[Any]], fresh: dict[str, str]) -> str | None:
    """Say what is wrong with an answer; labels of the live client may be in it, with their own text."""
    for one in found:
        if one["uid"] in fresh and one["text"] != fresh[one["uid"]]:
            return f"label {one['uid']} with the text {one['text']!r}"
    known = [one for one in found if one["uid"] not in fresh]
    if len(found) != K:
        return f"{len(found)} labels"
    for one, (uid, text, score) in zip(known, expected, strict=False):
        near = [text for _, text, other in expected if abs(other - one["score"]) <= CLOSE]  # a tie may fall either way
        if abs(one["score"] - score) > CLOSE or (one["uid"] != uid and one["text"] not in near):
            return f"{one} in place of {(uid, text, score)}"
    return None


async def ask(client: Client, seed: int, known: dict[str, Any], end: float, seen: dict[str, Any]) -> None:
    """Send one text after the other until the end."""
    dice = random.Random(seed)
    texts, expected = known["texts"], known["found"]
    while (start := time.perf_counter()) < end:
        place = dice.randrange(len(texts))
        try:
            status, answer = await client.call("POST", "/predict", {"texts": [texts[place]], "k": K})
        except (OSError, asyncio.IncompleteReadError) as error:
            seen["errors"].append(repr(error))
            return
        seen["seconds"].append(time.perf_counter() - start)
        if status != 200:
            seen["errors"].append(f"{status} {answer}")
        elif (said := wrong(answer["predictions"][0], expected[place], seen["fresh"])) is not None:
            seen["wrong"].append(said)


async def flood(client: Client, known: dict[str, Any], end: float, seen: dict[str, Any]) -> None:
    """Send a thousand texts a request until the end."""
    places = [place % len(known["texts"]) for place in range(1000)]
    body = {"texts": [known["texts"][place] for place in places], "k": K}
    while time.perf_counter() < end:
        status, answer = await client.call("POST", "/predict", body)
        rows = answer.get("predictions", [])
        if status != 200 or len(rows) != len(places):
            seen["errors"].append(f"{status} {answer.get('error')}")
            continue
        said = (wrong(row, known["found"][place], seen["fresh"]) for place, row in zip(places, rows, strict=True))
        seen["wrong"] += [one for one in said if one is not None]
        seen["large"] += 1


async def change(client: Client, texts: list[str], end: float, seen: dict[str, Any]) -> None:
    """Add a label, find it, remove it, see it gone; over and over."""
    while time.perf_counter() < end:
        text = texts[seen["changes"] % len(texts)]
        uid = f"fresh-{os.getpid()}-{seen['changes']}"
        seen["fresh"][uid] = text
        question = {"texts": [text], "k": 1, "heads": "dual"}
        start = time.perf_counter()
        added, _ = await client.call("POST", "/labels", {"texts": [text], "uids": [uid]})
        seen["change_seconds"].append(time.perf_counter() - start)
        _, found = await client.call("POST", "/predict", question)
        removed, _ = await client.call("DELETE", f"/labels/{uid}")
        _, after = await client.call("POST", "/predict", question)
        if (added, removed) != (201, 200):
            seen["errors"].append(f"changing labels: {added}, {removed}")
        if found["predictions"][0][0]["uid"] != uid or after["predictions"][0][0]["uid"] == uid:
            seen["wrong"].append(f"the label {uid} was not there when it should, or there when it should not")
        seen["changes"] += 1
        await asyncio.sleep(0.05)


async def load(host: str, port: int, request: dict[str, Any]) -> dict[str, Any]:
    """Keep the server busy with some clients."""
    expected = json.loads(Path(request["expected"]).read_text())
    seen: dict[str, Any] = {
        "seconds": [], "change_seconds": [], "errors": [], "wrong": [], "changes": 0, "large": 0, "fresh": {}
    }  # fmt: skip
    start = time.perf_counter()
    end = start + request["seconds"]
    clients = [Client(host, port) for _ in range(request["clients"])]
    work = [ask(one, seed, expected, end, seen) for seed, one in enumerate(clients)]
    if request["change"]:
        work.append(change(Client(host, port), expected["fresh"], end, seen))
    if request["large"]:
        work.append(flood(Client(host, port), expected, end, seen))
    await asyncio.gather(*work)
    took = time.perf_counter() - start
    if not seen["seconds"]:
        raise SystemExit(f"no answer at all: {seen['errors'][:3]}")
    millis = 1e3 * np.array(seen["seconds"])
    return {
        "clients": request["clients"],
        "seconds": took,
        "requests": len(millis),
        "per_second": len(millis) / took,
        "p50_ms": float(np.percentile(millis, 50)),
        "p99_ms": float(np.percentile(millis, 99)),
        "max_ms": float(millis.max()),
        "errors": len(seen["errors"]),
        "wrong": len(seen["wrong"]),
        "first_troubles": (seen["errors"] + seen["wrong"])[:5],
        "labels_changed": seen["changes"],
        "large_requests": seen["large"],
        "add_p50_ms": float(1e3 * np.median(seen["change_seconds"])) if seen["change_seconds"] else None,
    }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(load("127.0.0.1", int(sys.argv[1]), json.loads(sys.argv[2])))))
