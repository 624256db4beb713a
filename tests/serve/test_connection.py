"""One connection at a time, byte by byte: framing, pipelining, and what a client can do wrong."""

import json
import socket
import time
from contextlib import contextmanager, suppress

import pytest

BODY = b'{"texts": ["a"], "k": 1}'


@contextmanager
def connected(client):
    with socket.create_connection(("127.0.0.1", client.port), timeout=20) as connection:
        yield connection


def read_answer(connection, received=b"", *, has_body=True):
    """Return status, headers (lower-case), body, and the bytes that follow."""
    while b"\r\n\r\n" not in received:
        data = connection.recv(1 << 16)
        assert data, f"closed after {received!r}"
        received += data
    head, _, rest = received.partition(b"\r\n\r\n")
    status, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    length = int(headers.get("content-length", 0)) if has_body else 0
    while len(rest) < length:
        data = connection.recv(1 << 16)
        assert data, "closed in the body"
        rest += data
    return int(status.split()[1]), headers, rest[:length], rest[length:]


def read_to_end(connection):
    received = b""
    with suppress(ConnectionResetError):
        while data := connection.recv(1 << 16):
            received += data
    return received


def request(method="POST", path="/predict", *lines, body=BODY, length=True):
    head = [f"{method} {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json", *lines]
    if length:
        head.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*head, "", ""]).encode("latin-1") + body


def chunked(body, trailers=b"", extension=b""):
    return b"%x%s\r\n%s\r\n0\r\n%s\r\n" % (len(body), extension, body, trailers)


HEALTH = request("GET", "/health", body=b"", length=False)


def test_small_answers_are_not_held_back(client):
    """Without TCP_NODELAY, each answer on a kept connection waits 40 ms for the acknowledgement of the one before."""
    seconds = []
    with connected(client) as connection:
        for _ in range(20):
            start = time.perf_counter()
            connection.sendall(HEALTH)
            assert read_answer(connection)[0] == 200
            seconds.append(time.perf_counter() - start)
    assert sorted(seconds)[10] < 0.03, seconds


def test_every_connection_has_nodelay(client):
    with connected(client) as connection:
        connection.sendall(HEALTH)
        read_answer(connection)
        accepted = [other.transport.get_extra_info("socket") for other in client.server.server_state.connections]
        options = [each.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) for each in accepted]
    assert options
    assert all(options)


def test_trailers_never_become_headers(run, serving, model):
    """A trailer could otherwise hand over a key, or another Host, after the checks."""
    with serving(model, api_key="sesame") as client, connected(client) as connection:
        seen = []
        guarded = client.app.state.engine.predict
        client.app.state.engine.predict = lambda job: seen.append(job) or guarded(job)
        head = request("POST", "/predict", "Transfer-Encoding: chunked", body=b"", length=False)
        connection.sendall(head + chunked(BODY, b"X-API-Key: sesame\r\nAuthorization: Bearer sesame\r\n"))
        assert read_answer(connection)[0] == 401
        assert not seen


def test_trailers_are_dropped(client):
    """The app sees the same headers, whenever the trailers arrive."""
    headers = []
    inner = client.app.middleware_stack

    async def spy(scope, receive, send):
        async def receive_and_look():
            message = await receive()
            headers.append([name for name, _ in scope["headers"]])
            return message

        await inner(scope, receive_and_look, send)

    client.app.middleware_stack = spy
    try:
        head = request("POST", "/predict", "Transfer-Encoding: chunked", body=b"", length=False)
        rest = chunked(BODY, b"X-Smuggled: yes\r\nHost: evil.example\r\n")
        with connected(client) as connection:
            for cut in (0, 10, len(rest) - 12, len(rest)):
                connection.sendall(head + rest[:cut])
                time.sleep(0.05)
                connection.sendall(rest[cut:])
                assert read_answer(connection)[0] == 200
    finally:
        client.app.middleware_stack = inner
    assert headers
    assert all(b"x-smuggled" not in names for names in headers)


@pytest.mark.parametrize("endless", ["trailer", "chunk extension"])
def test_framing_without_end_is_refused(client, endless):
    head = request("POST", "/predict", "Transfer-Encoding: chunked", body=b"", length=False)
    start = b"0\r\nX-Long: " if endless == "trailer" else b"5;x="
    with connected(client) as connection:
        connection.sendall(head + start)
        sent = 0
        with suppress(OSError):
            while sent < 4 << 20:
                connection.sendall(b"a" * 4096)
                sent += 4096
        assert sent < 4 << 20 or b"431" in read_to_end(connection)[:20]
    assert client.get("/health").status_code == 200


def test_one_byte_at_a_time(client):
    whole = request(body=BODY) + request("POST", "/predict", "Transfer-Encoding: chunked", body=b"", length=False)
    whole += chunked(BODY, b"X-A: b\r\n", b";name=value")
    with connected(client) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in whole:
            connection.sendall(bytes([byte]))
        first = read_answer(connection)
        second = read_answer(connection, first[3])
    assert (first[0], second[0]) == (200, 200)
    assert first[2] == second[2]


def test_chunks_of_one_byte(client):
    text = json.dumps({"texts": ["word " * 4_000], "k": 1}).encode()  # six bytes of framing for each
    body = b"".join(b"1\r\n%c\r\n" % byte for byte in text) + b"0\r\n\r\n"
    with connected(client) as connection:
        connection.sendall(request("POST", "/predict", "Transfer-Encoding: chunked", body=b"", length=False) + body)
        assert read_answer(connection)[0] == 200


UPGRADE = ["Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA"]


@pytest.mark.parametrize("kind", ["length", "chunked"])
def test_an_offer_to_upgrade_is_ignored_wherever_it_is_cut(client, kind):
    if kind == "length":
        whole = request("POST", "/predict", *UPGRADE)
    else:
        whole = request("POST", "/predict", "Transfer-Encoding: chunked", *UPGRADE, body=b"", length=False)
        whole += chunked(BODY)
    expected = client.post("/predict", content=BODY, headers={"Content-Type": "application/json"}).content
    place = whole.lower().index(b"upgrade: h2c")
    for cut in (len(whole), place, place + 3, place + 7, place + 11, whole.index(b"\r\n\r\n") + 2, len(whole) - 5):
        with connected(client) as connection:
            connection.sendall(whole[:cut])
            time.sleep(0.02)
            connection.sendall(whole[cut:] + HEALTH)  # the connection goes on
            status, _, body, rest = read_answer(connection)
            assert (status, body) == (200, expected), cut
            assert read_answer(connection, rest)[2] == b'{"status":"ok"}'


def test_the_body_after_an_offer_to_upgrade_is_no_request(client):
    inner = b"DELETE /labels/0 HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with connected(client) as connection:
        connection.sendall(request("POST", "/predict", *UPGRADE, body=inner) + HEALTH)
        status, _, _, rest = read_answer(connection)
        assert status == 400  # not JSON
        assert read_answer(connection, rest)[2] == b'{"status":"ok"}'


def test_connect_is_refused(client):
    with connected(client) as connection:
        connection.sendall(b"CONNECT example.org:443 HTTP/1.1\r\nHost: example.org:443\r\n\r\nmore")
        assert read_answer(connection)[0] == 405
        assert read_to_end(connection) == b""


SMUGGLED = b"GET /model HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.mark.parametrize(
    "lines",
    [
        ["Content-Length: 5", "Content-Length: 6"],
        ["Content-Length: 5, 5"],
        ["Content-Length: +5"],
        ["Content-Length: 0x5"],
        ["Content-Length: 5 5"],
        ["Content-Length: 99999999999999999999999"],
        ["Content-Length: 5", "Transfer-Encoding: chunked"],
        ["Transfer-Encoding: chunked", "Content-Length: 5"],
        ["Transfer-Encoding: chunked, identity"],
        ["Transfer-Encoding: identity, gzip"],
        ["Transfer-Encoding: xchunked"],
        ["Transfer-Encoding: chunked", "Transfer-Encoding: identity"],
        ["Transfer-Encoding : chunked"],
        ["Transfer-Encoding:\x0bchunked"],
        ["X: a\rTransfer-Encoding: chunked"],
        ["X: a\nTransfer-Encoding: chunked"],
        ["X: a\r\n Transfer-Encoding: chunked", "Transfer-Encoding: nonsense"],
        ["Content_Length: 5", "Content-Length : 6"],
        ["X\x00: a"],
        [": a"],
    ],
)
def test_ambiguous_framing_is_refused(client, lines):
    """Each request is refused as a whole: what looks like a second request is never answered as one."""
    with connected(client) as connection:
        connection.sendall(request("POST", "/predict", *lines, body=b"", length=False) + b"0\r\n\r\n" + SMUGGLED)
        received = read_to_end(connection)
    assert received.startswith(b"HTTP/1.1 400 ")
    assert received.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize(
    "chunks",
    [b"5\n{}   \r\n0\r\n\r\n", b"-5\r\n", b"0x5\r\n{}   \r\n0\r\n\r\n", b"5 \r\n{}   \r\n0\r\n\r\n",
     b"fffffffffffffffff\r\n", b"5\r\n{}   0\r\n\r\n", b"5;\n\r\n{}   \r\n0\r\n\r\n", b"\r\n5\r\n{}   \r\n0\r\n\r\n"],
)  # fmt: skip
def test_broken_chunks_are_refused(client, chunks):
    with connected(client) as connection:
        head = request("POST", "/predict", "Transfer-Encoding: chunked", body=b"", length=False)
        connection.sendall(head + chunks + SMUGGLED)
        received = read_to_end(connection)
    assert received.startswith(b"HTTP/1.1 400 ")
    assert received.count(b"HTTP/1.1") == 1


def test_an_invalid_request_waits_for_the_answers_before_it(client):
    with connected(client) as connection:
        connection.sendall(request() * 2 + b"nonsense\r\n\r\n" + request())
        received = read_to_end(connection)
    assert [int(part[:3]) for part in received.split(b"HTTP/1.1 ")[1:]] == [200, 200, 400]


def test_many_pipelined_requests_end_the_connection_in_order(client):
    """A client may send again what was not answered; queueing thousands of requests would fill the memory."""
    with connected(client) as connection:
        with suppress(OSError):
            connection.sendall(request() + HEALTH * 5_000)
        received = read_to_end(connection)
    answers = received.split(b"HTTP/1.1 200 OK")[1:]
    assert 2 <= len(answers) <= 32
    assert b"predictions" in answers[0]
    assert all(answer.endswith(b'{"status":"ok"}') for answer in answers[1:])
    assert b"connection: close" in answers[-1]


def test_a_refusal_reaches_a_client_that_is_still_sending(client):
    with connected(client) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + b"X: " + b"a" * 70_000)
        with suppress(OSError):
            for _ in range(200):
                connection.sendall(b"a" * 65_536)
        received = read_to_end(connection)
    assert received.startswith(b"HTTP/1.1 431 ")


def test_a_client_that_ends_its_side_is_gone(client):
    with connected(client) as connection:
        connection.sendall(request()[:-5])
        connection.shutdown(socket.SHUT_WR)
        assert b"200" not in read_to_end(connection)
    assert client.get("/health").status_code == 200


def test_expect_continue(client):
    with connected(client) as connection:
        connection.sendall(request("POST", "/predict", "Expect: 100-continue")[: -len(BODY)])
        assert connection.recv(1 << 16) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(BODY)
        assert read_answer(connection)[0] == 200


def test_a_refused_expectation_closes_the_connection(client):
    """The client may send the body or not: what follows cannot be told from a request."""
    with connected(client) as connection:
        lines = ["Expect: 100-continue", f"Content-Length: {1 << 40}"]
        connection.sendall(request("POST", "/predict", *lines, body=b"", length=False))
        status, headers, _, _ = read_answer(connection)
        assert (status, headers["connection"]) == (413, "close")
        connection.sendall(SMUGGLED)
        assert read_to_end(connection) == b""


@pytest.mark.parametrize("path", ["/", "/health", "/model", "/metrics", "/labels?limit=3", "/openapi.json", "/docs"])
def test_head_is_get_without_a_body(client, path):
    with connected(client) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        status, expected, body, _ = read_answer(connection)
        assert (status, len(body)) == (200, int(expected["content-length"]))
        connection.sendall(f"HEAD {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        status, headers, _, rest = read_answer(connection, has_body=False)
        assert (status, rest) == (200, b"")
        ignored = {"date", "content-length"} if path == "/metrics" else {"date"}
        assert {name: value for name, value in headers.items() if name not in ignored} == {
            name: value for name, value in expected.items() if name not in ignored
        }
        connection.sendall(HEALTH)  # nothing was left over
        assert read_answer(connection)[2] == b'{"status":"ok"}'


def test_head_of_an_error(client):
    assert client.head("/nothing").status_code == 404
    assert client.head("/predict").status_code == 405
    assert client.head("/labels/x").headers["Allow"] == "DELETE, OPTIONS, PATCH"
    assert 'method="HEAD",route="other",status="404"' in client.get("/metrics").text


def test_options_says_what_is_allowed(client):
    for path, methods in [
        ("/predict", "OPTIONS, POST"), ("/labels", "DELETE, GET, HEAD, OPTIONS, POST"),
        ("/health", "GET, HEAD, OPTIONS"), ("/labels/a%2Fb", "DELETE, OPTIONS, PATCH"),
    ]:  # fmt: skip
        answer = client.options(path)
        assert (answer.status_code, answer.headers["Allow"], answer.content) == (204, methods, b"")
        assert not [name for name in answer.headers if name.startswith("access-control")]
        assert client.request("TRACE", path).headers["Allow"] == methods
    assert client.options("/nothing").status_code == 404


def test_http_1_0_closes(client):
    with connected(client) as connection:
        connection.sendall(b"GET /health HTTP/1.0\r\nHost: localhost\r\nConnection: keep-alive\r\n\r\n")
        assert b"connection: close" in read_to_end(connection).lower()


def test_absolute_targets_and_odd_paths(client):
    for target, status in [
        ("http://localhost/health", 200), ("http://localhost:8/health", 200), ("http://evil.example/health", 403),
        ("http://[::1]/health", 200), ("/%ff", 404), ("/%ed%a0%80", 404),
        ("//health", 404), ("/health/", 404), ("/./health", 404), ("*", 404),
        ("/page/../../server.py", 404), ("/page/%2e%2e/%2e%2e/server.py", 404),
        ("/page/..%2f..%2fpage%2findex.html", 404), ("/page//etc/passwd", 404),
        ("/docs/%00.js", 404), ("/page/index.html%00.js", 404), ("/health%0a", 404),
    ]:  # fmt: skip
        with connected(client) as connection:
            connection.sendall(f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            assert read_answer(connection)[0] == status, target
