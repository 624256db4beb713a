"""The playground, the API documentation and their files; no other file can be read."""

import json
import re
import socket

import pytest

HEADERS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
}


def test_the_page_and_its_files(client):
    page = client.get("/")
    assert page.status_code == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.headers["content-security-policy"].startswith("default-src 'self';")
    assert page.headers.items() >= HEADERS.items()
    names = re.findall(r'(?:src|href)="(page/[^"]+)"', page.text)
    assert names
    for name in names:
        assert client.get(f"/{name}").status_code == 200, name


def test_the_documentation_loads_nothing_from_other_hosts(client):
    page = client.get("/docs")
    files = [page, *(client.get(f"/{name}") for name in re.findall(r'(?:src|href)="(docs/[^"]+)"', page.text))]
    assert [file.status_code for file in files] == [200] * 3
    assert not any("http://" in file.text or "https://" in file.text for file in files)


def test_browsers_revalidate_cached_files(client):
    first = client.get("/docs/docs.js")
    assert first.headers["content-type"] == "text/javascript; charset=utf-8"
    again = client.get("/docs/docs.js", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert first.headers["cache-control"] == again.headers["cache-control"] == "no-cache"
    assert again.headers["etag"] == first.headers["etag"]


@pytest.mark.parametrize("value", ["bytes=0-1", "bytes=9-1", "nonsense"])
def test_ranges_are_ignored(client, value):
    answer = client.get("/docs/docs.js", headers={"Range": value, "If-Range": "x"})
    assert (answer.status_code, answer.content) == (200, client.get("/docs/docs.js").content)


@pytest.mark.parametrize("folder", ["page", "docs"])
@pytest.mark.parametrize(
    "name",
    ["../app.py", "..%2fapp.py", "%2e%2e/app.py", "....//app.py", "..\\app.py", "..%5capp.py", "/etc/passwd",
     "%2fetc%2fpasswd", "../../../../../../../../etc/passwd", "index.html%00.js", "", ".", "..", "docs.html/..",
     "a" * 5000, "%ff%fe"],
)  # fmt: skip
def test_no_other_file_can_be_read(client, folder, name):
    with socket.create_connection(("127.0.0.1", client.port), timeout=20) as raw:  # clients normalise the path
        raw.sendall(f"GET /{folder}/{name} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        answer = b""
        while data := raw.recv(1 << 16):
            answer += data
    assert answer.split()[1] == b"404", answer[:200]
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == "not_found"
    assert b"root:" not in answer


@pytest.mark.parametrize("uid", ["../model", "..%2f..%2fetc%2fpasswd", "%2e%2e", "a/b/c", "%00", "x" * 1000])
def test_uids_are_not_paths(client, uid):
    assert client.delete(f"/labels/{uid}").status_code in (404, 405)
    assert client.get("/model").json()["labels"] == 60


def test_errors_have_one_shape(client):
    for method, path, status in (
        ("GET", "/nothing", 404), ("GET", "/labels/x", 405), ("PUT", "/predict", 405), ("GET", "/predict", 405),
        ("TRACE", "/", 405), ("POST", "/health", 405),
        ("DELETE", "/labels/" + "x" * 1001, 404), ("DELETE", "/labels/", 422),
    ):  # fmt: skip
        answer = client.request(method, path)
        assert answer.status_code == status, (method, path)
        assert answer.json()["error"].keys() == {"code", "message", "where"}
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers.items() >= HEADERS.items()
    assert client.put("/labels").headers["allow"] == "DELETE, GET, HEAD, OPTIONS, POST"


def test_the_openapi_document_is_complete(client):
    document = client.get("/openapi.json").json()
    assert set(document["paths"]) == {
        "/predict", "/explain", "/labels", "/labels/{uid}", "/model", "/health", "/metrics",
    }  # fmt: skip
    schemas = document["components"]["schemas"]
    assert "HTTPValidationError" not in schemas
    predict = schemas["Predict"]
    assert predict["additionalProperties"] is False
    k = predict["properties"]["k"]["anyOf"][0]
    assert predict["properties"]["texts"]["maxItems"] == k["maximum"] == 1000
    assert predict["properties"]["heads"]["enum"] == ["all", *client.get("/model").json()["heads"]]
    for item in document["paths"].values():
        for operation in item.values():
            assert operation["summary"]
            assert operation["description"]
            assert {"400", "401", "403", "413", "429", "500", "503"} <= operation["responses"].keys()
