"""Large bodies, slow clients, full queues: each gets an answer or is disconnected, and the server keeps running."""

import errno
import json
import socket
import threading
import time
from contextlib import contextmanager, suppress

import pytest
import torch

import megalabel as ml
from megalabel.serve.middleware import RequestGuard


@pytest.fixture(scope="module")
def quick(run, serving):
    """A server with short timeouts."""
    with serving(ml.Model.load(run), timeout=1.0, header_seconds=1.0) as client:
        yield client
        assert client.get("/health").json() == {"status": "ok"}


@pytest.fixture(scope="module")
def narrow(run, serving):
    """A server that accepts only small bodies."""
    with serving(ml.Model.load(run), body_bytes=1 << 20) as client:
        yield client
        assert client.get("/health").json() == {"status": "ok"}


def connect(client):
    connection = socket.create_connection(("127.0.0.1", client.port), timeout=20)
    connection.settimeout(20)
    return connection


def read(connection):
    """Read until the server closes the connection, or one answer is complete."""
    received = b""
    while True:
        try:
            data = connection.recv(1 << 16)
        except ConnectionResetError:
            return received
        received += data
        head, _, body = received.partition(b"\r\n\r\n")
        length = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        if not data or (length and len(body) >= int(length[0].split(b":")[1])):
            return received


def error_of(received):
    head, _, body = received.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)["error"]


def head(path="/predict", **headers):
    lines = {"Host": "localhost", "Content-Type": "application/json"} | headers
    return "\r\n".join(
        [f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in lines.items()), "", ""]
    ).encode()


@contextmanager
def blocked(client):
    """Block the thread of the model."""
    release = threading.Event()
    batcher = client.engine.batcher
    batcher._task.get_loop().call_soon_threadsafe(batcher.call, release.wait)
    try:
        yield release
    finally:
        release.set()


def wait_until(condition):
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_content_length_above_the_limit(narrow):
    answer = narrow.post("/predict", content=b'{"texts": ["' + b"a" * (10 << 20) + b'"]}')
    assert answer.status_code == 413
    assert "1,048,576 bytes" in answer.json()["error"]["message"]
    assert "--max-body" in answer.json()["error"]["message"]
    assert narrow.get("/health").status_code == 200  # on the same connection


def test_a_chunked_body_above_the_limit(narrow):
    answer = narrow.post("/predict", content=iter([b"a" * 65536] * 40), headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "too_large")


def test_a_chunked_body(narrow):
    headers = {"Content-Type": "application/json"}
    answer = narrow.post("/predict", content=iter([b'{"te', b'xts": [', b'"a"]}']), headers=headers)
    assert answer.status_code == 200


def test_an_endless_body_is_disconnected(quick):
    with connect(quick) as slow:
        slow.sendall(head(**{"Transfer-Encoding": "chunked"}))
        start = time.monotonic()
        with pytest.raises((BrokenPipeError, ConnectionResetError, TimeoutError)):
            while time.monotonic() - start < 20:
                slow.sendall(b"1000\r\n" + b"a" * 4096 + b"\r\n")
        assert time.monotonic() - start < 15


def test_a_slow_body(quick):
    with connect(quick) as slow:
        slow.sendall(head(**{"Content-Length": "100"}) + b'{"texts"')
        status, error = error_of(read(slow))
        assert (status, error["code"]) == (408, "too_slow")


def test_slow_headers(quick):
    with connect(quick) as slow:
        slow.sendall(b"POST /predict HTTP/1.1\r\nHost: loc")
        status, error = error_of(read(slow))
        assert (status, error["code"]) == (408, "too_slow")


def test_slow_headers_after_a_complete_request(quick):
    with connect(quick) as slow:
        slow.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"200 OK" in read(slow)
        slow.sendall(b"GET /health HT")
        assert error_of(read(slow))[0] == 408


def test_a_silent_connection_is_closed(quick):
    with connect(quick) as silent:
        assert read(silent) == b""


def test_headers_above_the_limit(narrow):
    with connect(narrow) as large:
        large.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n")
        with suppress(BrokenPipeError, ConnectionResetError):
            for number in range(100):
                large.sendall(f"X-{number}: {'a' * 4096}\r\n".encode())
        answer = read(large)
        assert not answer or error_of(answer)[0] == 431
    assert narrow.get("/health").status_code == 200


@pytest.mark.parametrize(
    "sent",
    [b"hello\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n",
     b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"GET /\xff HTTP/1.1\r\n\r\n",
     b"GET / HTTP/1.1\r\nHost : x\r\n\r\n", b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
     b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
     b"POST /predict HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
     b"POST /predict HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip\r\n\r\nzz\r\n"],
)  # fmt: skip
def test_invalid_http(narrow, sent):
    with connect(narrow) as odd:
        odd.sendall(sent)
        status, error = error_of(read(odd))
        assert (status, error["code"]) == (400, "bad_request")


def test_an_offer_to_upgrade_is_ignored(narrow):
    body = b'{"texts": ["a"]}'
    with connect(narrow) as other:
        other.sendall(head(**{"Content-Length": len(body), "Connection": "Upgrade", "Upgrade": "h2c"}) + body)
        answer = read(other)
        assert b"200 OK" in answer
        assert b'{"predictions":[[' in answer


def test_two_hosts_are_refused(narrow):
    with connect(narrow) as odd:
        odd.sendall(b"GET /model HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n")
        assert error_of(read(odd))[0] == 403


def test_pipelined_requests(narrow):
    body = b'{"texts": ["a"]}'
    with connect(narrow) as many:
        many.sendall((head(**{"Content-Length": len(body)}) + body) * 3)
        received = b""
        while received.count(b'{"predictions"') < 3:
            data = many.recv(1 << 16)
            assert data
            received += data


def test_no_answer_in_time(run, serving):
    with serving(ml.Model.load(run), timeout=2.0) as client:
        with blocked(client):
            answer = client.post("/predict", json={"texts": ["a"]})
            assert (answer.status_code, answer.json()["error"]["code"]) == (504, "timeout")
        wait_until(lambda: client.engine.batcher.waiting == 0)
        assert client.post("/predict", json={"texts": ["a"]}).status_code == 200


def test_a_full_queue_returns_retry_after(run, serving):
    with serving(ml.Model.load(run), queue=5) as client:
        answers = []
        first = threading.Thread(target=lambda: answers.append(client.post("/predict", json={"texts": ["a"] * 4})))
        with blocked(client):
            first.start()
            wait_until(lambda: client.engine.batcher.waiting == 5)
            for answer in (
                client.post("/predict", json={"texts": ["a"]}),
                client.post("/explain", json={"text": "a"}),
                client.post("/labels", json={"texts": ["a"]}),
            ):
                assert (answer.status_code, answer.json()["error"]["code"]) == (429, "busy")
                assert int(answer.headers["Retry-After"]) >= 1
            assert client.get("/health").status_code == 200
        first.join()
        assert answers[0].status_code == 200
        assert client.post("/predict", json={"texts": ["a"]}).status_code == 200


def test_a_client_that_disconnects_leaves_the_queue(run, serving):
    with serving(ml.Model.load(run)) as client:
        body = json.dumps({"texts": ["a"] * 100}).encode()
        with blocked(client):
            with connect(client) as leaving:
                leaving.sendall(head(**{"Content-Length": len(body)}) + body)
                wait_until(lambda: client.engine.batcher.waiting == 101)
            wait_until(lambda: client.engine.batcher.waiting == 1)
        assert 'status="499"' in client.get("/metrics").text


def test_too_many_requests_at_once(run, serving):
    with serving(ml.Model.load(run), requests=2) as client:
        ask = {"args": ("/predict",), "kwargs": {"json": {"texts": ["a"]}}}
        threads = [threading.Thread(target=client.post, **ask) for _ in range(2)]
        with blocked(client):
            for thread in threads:
                thread.start()
            wait_until(lambda: client.engine.batcher.waiting == 3)
            assert client.get("/health").status_code == 429
        for thread in threads:
            thread.join()
        assert client.get("/health").status_code == 200


def test_a_client_that_does_not_read_is_disconnected(run, serving):
    with serving(ml.Model.load(run), timeout=4.0) as client:
        client.post("/labels", json={"texts": ["long " * 20_000]})
        body = json.dumps({"texts": ["a"] * 200, "k": 1000, "heads": "dual"}).encode()
        with socket.socket() as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            deaf.connect(("127.0.0.1", client.port))
            deaf.sendall(head(**{"Content-Length": len(body)}) + body)
            wait_until(lambda: 'method="POST",route="/predict",status="200"' in client.get("/metrics").text)
            assert len(read(deaf)) < 10 << 20  # of 20 MB
        assert client.get("/health").status_code == 200


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("[enforce fail at alloc_cpu.cpp:119] . DefaultCPUAllocator: can't allocate memory: you tried to"),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
        RuntimeError("std::bad_alloc"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_no_memory_for_a_prediction(quick, error, monkeypatch, caplog):
    ask = {"json": {"texts": ["a", "b"]}}

    def fail(*arguments, **options):
        raise error

    with monkeypatch.context() as patch:
        for name in ("_search", "explain", "add_labels"):
            patch.setattr(quick.engine.model, name, fail)
        for path, body in [
            ("/predict", {"texts": ["a", "b"]}), ("/explain", {"text": "a"}), ("/labels", {"texts": ["a label"]}),
        ]:  # fmt: skip
            answer = quick.post(path, json=body)
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "out_of_memory")
            assert "fewer or shorter texts" in answer.json()["error"]["message"]
            assert int(answer.headers["Retry-After"]) >= 1
    assert "Traceback" not in caplog.text
    assert quick.post("/predict", **ask).status_code == 200
    assert quick.get("/model").json()["labels"] == 60


def test_a_request_without_memory_does_not_fail_those_beside_it(run, serving, monkeypatch):
    with serving(ml.Model.load(run)) as client:
        search = client.engine.model._search

        def fail_if_large(state, texts, *arguments, **options):
            if "large" in texts:
                raise MemoryError
            return search(state, texts, *arguments, **options)

        monkeypatch.setattr(client.engine.model, "_search", fail_if_large)
        answers = {}

        def post(text):
            answers[text] = client.post("/predict", json={"texts": [text]}).status_code

        threads = [threading.Thread(target=post, args=(text,)) for text in ("small", "large", "other")]
        with blocked(client):
            for thread in threads:
                thread.start()
            wait_until(lambda: client.engine.batcher.waiting == 4)
        for thread in threads:
            thread.join()
        assert answers == {"small": 200, "large": 503, "other": 200}


def test_thousands_of_equal_headers_take_no_time(narrow):
    lines = b"a: b\r\n" * 10_000
    with connect(narrow) as odd:
        start = time.perf_counter()
        odd.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + lines + b"\r\n")
        assert read(odd).startswith(b"HTTP/1.1 200")
        assert time.perf_counter() - start < 1


def test_freed_memory_is_returned_soon_after_requests(run, serving, monkeypatch):
    model, trims, trim = ml.Model.load(run), [], RequestGuard._trim_memory

    def record(guard):
        if guard.engine.model is model:  # other servers of this file are running too
            trims.append(guard)
        trim(guard)

    monkeypatch.setattr(RequestGuard, "_trim_memory", record)
    monkeypatch.setattr("megalabel.serve.middleware._TRIM_SECONDS", 2.0)
    with serving(model) as client:
        start = time.monotonic()
        for _ in range(10):
            assert client.get("/health").status_code == 200
        periods = int((time.monotonic() - start) // 2)  # 0, unless the machine is very busy
        wait_until(lambda: trims)
        time.sleep(2.5)
        before = len(trims)
        assert before <= 1 + periods  # once for all requests of a period, and not without them
        client.get("/health")
        wait_until(lambda: len(trims) == before + 1)
