"""Nothing a client sends gives a 500 or ends the server: requests made by schemathesis, and worse ones made by hand."""

import json
import random
import subprocess
import sys

import pytest

PATHS = [("POST", "/predict"), ("POST", "/explain"), ("POST", "/labels"), ("DELETE", "/labels"), ("PATCH", "/labels/x")]
JSON = {"Content-Type": "application/json"}
DEEP = 100_000
BODIES = {
    "nothing": b"",
    "no JSON": b"nope",
    "10 MB of one text": b'{"texts": ["' + b"a" * 10_000_000 + b'"]}',
    "10 MB that never closes": b'{"texts": ["' + b"a" * 10_000_000,
    "10 MB of spaces": b" " * 10_000_000,
    "17 MB": b"[" + b"1," * 8_500_000 + b"1]",
    "200,000 texts": json.dumps({"texts": ["a"] * 200_000, "uids": ["a"] * 200_000}).encode(),
    "200,000 numbers": json.dumps({"texts": list(range(200_000)), "uids": list(range(200_000))}).encode(),
    "200,000 keys": json.dumps({str(number): number for number in range(200_000)}).encode(),
    "deep lists": b"[" * DEEP,
    "deep lists that close": b'{"texts": ' + b"[" * DEEP + b"]" * DEEP + b"}",
    "deep objects": b'{"texts":' * DEEP,
    "k of 1e9": b'{"texts": ["a"], "text": "a", "k": 1000000000}',
    "k of 1e9 as a float": b'{"texts": ["a"], "text": "a", "k": 1e9}',
    "k of many digits": b'{"texts": ["a"], "text": "a", "k": ' + b"9" * 5000 + b"}",
    "k of 1e400": b'{"texts": ["a"], "text": "a", "k": 1e400}',
    "k of NaN": b'{"texts": ["a"], "text": "a", "k": NaN}',
    "tail of NaN": b'{"texts": ["a"], "tail": NaN}',
    "score of -Infinity": b'{"texts": ["a"], "min_score": -Infinity}',
    "not UTF-8": b'{"texts": ["\xff\xfe"], "text": "\xff", "uids": ["\xff"]}',
    "UTF-16": '{"texts": ["a"]}'.encode("utf-16"),
    "byte order mark": b'\xef\xbb\xbf{"texts": ["a"]}',
    "half a pair": b'{"texts": ["\\ud800"], "text": "\\ud800", "uids": ["\\udfff"]}',
    "NUL": b'{"texts": ["\\u0000"], "text": "\\u0000", "label": "\\u0000", "uids": ["\\u0000"]}',
    "NUL bytes": b"\x00" * 1000,
    "keys twice": b'{"texts": ["a"], "texts": 5}',
    "a long key": b'{"' + b"k" * 1_000_000 + b'": 1}',
    "null": b"null",
    "true": b"true",
    "a number": b"1e5",
    "a string": b'"texts"',
    "pickle": b"\x80\x04\x95\x00\x00\x00\x00.",
    "XML": b'<?xml version="1.0"?><!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]><a>&b;</a>',
}
HEADERS = [
    {"Content-Type": "application/json; charset=utf-16"},
    {"Content-Type": "application/json, text/html"},
    {"Content-Type": "x" * 10_000},
    {"Content-Type": b"\xff\xfe"},
    {"Content-Encoding": "gzip", **JSON},
    {"Expect": "100-continue", **JSON},
    {"Expect": "nonsense", **JSON},
    {"Upgrade": "websocket", "Connection": "Upgrade", **JSON},
    {"Upgrade": "h2c", "Connection": "Upgrade, HTTP2-Settings", "HTTP2-Settings": "AAMAAABkAAQAoAAAAAIAAAAA", **JSON},
    {"Accept": "image/png", **JSON},
    {"Range": "bytes=0-1", **JSON},
    {"X-Forwarded-For": "', DROP TABLE labels; --", "X-Forwarded-Proto": "javascript", **JSON},
    {"X-HTTP-Method-Override": "DELETE", **JSON},
    {"Cookie": "a=" + "b" * 30_000, **JSON},
    {"Authorization": b"Bearer \xff\xff", **JSON},
    {f"X-{number}": "a" * 100 for number in range(200)} | JSON,
    {"Origin": "javascript:alert(1)", **JSON},
    {"Host": "localhost:99999", **JSON},
    {"Host": "[::1%25lo]", **JSON},
]


def check(client, answer):
    """An error is told in the one form, none is a fault of the server, and the server is well."""
    assert answer.status_code < 500, answer.text[:300]
    if answer.status_code >= 400:
        error = answer.json()["error"]
        assert error.keys() == {"code", "message", "where"}
        assert len(error["message"]) < 1000
        assert "\n" not in error["message"]
    assert client.get("/health").json() == {"status": "ok"}


@pytest.mark.parametrize("name", BODIES)
def test_bodies(client, name):
    for method, path in PATHS:
        answer = client.request(method, path, content=BODIES[name], headers=JSON)
        check(client, answer)
        assert answer.status_code >= 400 or name in ("NUL", "k of 1e9") or len(answer.content) < 10_000


@pytest.mark.parametrize("place", range(len(HEADERS)))
def test_headers(client, place):
    import httpx

    for method, path in PATHS:
        try:
            answer = client.request(method, path, content=b'{"texts": ["a"]}', headers=HEADERS[place])
        except httpx.RemoteProtocolError:  # the server does not speak this
            assert client.get("/health").status_code == 200
            continue
        check(client, answer)


@pytest.mark.parametrize(
    "path",
    ["/labels?find=%ff", "/labels?find=%00", "/labels?offset=" + "9" * 5000, "/labels?limit=1e3", "/labels?offset=NaN",
     "/labels?limit=1&limit=2", "/labels?" + "a=b&" * 5000, "/labels?find=" + "a" * 1001, "/%ff", "/labels/%ff", "/%00",
     "/predict/../model", "/;", "/*"],
)  # fmt: skip
def test_addresses(client, path):
    for method in ("GET", "POST", "DELETE", "PATCH", "PUT", "HEAD", "OPTIONS", "TRACE"):
        answer = client.request(method, path)
        if method != "HEAD":
            check(client, answer)


def test_random_bytes_and_documents(client):
    """Documents with one thing changed, and noise; seeded."""
    dice = random.Random(3)
    values = [None, True, 0, -1, 5, 1.5, 1e308, "", "a", [], ["a"], [None], {}, {"a": "a"}, [["a"]], "é" * 1000, [""]]
    keys = ["texts", "k", "heads", "tail", "min_score", "details", "uids", "text", "label", "x"]
    for _ in range(150):
        method, path = dice.choice(PATHS)
        document = {dice.choice(keys): dice.choice(values) for _ in range(dice.randint(0, 5))}
        content = dice.choice([json.dumps(document).encode(), json.dumps(document).encode()[: dice.randint(0, 30)],
                               dice.randbytes(dice.randint(0, 200))])  # fmt: skip
        answer = client.request(method, path, content=content, headers=JSON)
        assert answer.status_code < 500, (content, answer.text)
    check(client, client.get("/model"))


def fuzz(client, tmp_path, *options):
    """Run schemathesis on the document of the server; only its check of what no schema can say is left out."""
    done = subprocess.run(
        [sys.executable, "-m", "schemathesis.cli", "run", f"{client.base_url}/openapi.json", "--checks", "all",
         "--exclude-checks", "positive_data_acceptance", "--seed", "7", "--warnings", "off", *options],
        capture_output=True, text=True, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert client.get("/health").json() == {"status": "ok"}
    assert 'status="500"' not in client.get("/metrics").text


def test_schemathesis(client, tmp_path):
    fuzz(client, tmp_path, "--phases", "examples,fuzzing", "--max-examples", "5")


@pytest.mark.slow
def test_schemathesis_long(client, tmp_path):
    fuzz(client, tmp_path, "--max-examples", "100")


@pytest.mark.slow
def test_random_bytes_and_documents_long(client):
    dice = random.Random(4)
    for _ in range(5000):
        method, path = dice.choice(PATHS)
        body = bytearray(
            dice.choice([b'{"texts": ["a", "b"], "k": 3, "details": true}', b'{"text": "a", "label": "x"}'])
        )
        for _ in range(dice.randint(1, 6)):
            place = dice.randrange(len(body))
            body[place : place + dice.randint(0, 3)] = dice.randbytes(dice.randint(0, 3))
        answer = client.request(method, path, content=bytes(body), headers=JSON)
        assert answer.status_code < 500, (body, answer.text)
    check(client, client.get("/model"))
