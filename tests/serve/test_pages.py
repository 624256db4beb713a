"""The page, the documentation of the API and their files; nothing else of the disk."""

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


def test_the_documentation_needs_no_other_server(client):
    page = client.get("/docs")
    files = [page, *(client.get(f"/{name}") for name in re.findall(r'(?:src|href)="(docs/[^"]+)"', page.text))]
    assert [one.status_code for one in files] == [200] * 3
    assert not any("http://" in one.text or "https://" in one.text for one in files)


def test_a_file_is_sent_once(client):
    first = client.get("/docs")
    again = client.get("/docs", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize("folder", ["page", "docs"])
@pytest.mark.parametrize(
    "name",
    ["../app.py", "..%2fapp.py", "%2e%2e/app.py", "....//app.py", "..\\app.py", "..%5capp.py", "/etc/passwd",
     "%2fetc%2fpasswd", "../../../../../../../../etc/passwd", "index.html%00.js", "", ".", "..", "docs.html/..",
     "a" * 5000, "%ff%fe"],
)  # fmt: skip
def test_nothing_else_can_be_read(client, folder, name):
    with socket.create_connection(("127.0.0.1", client.port), timeout=20) as raw:  # clients would tidy the path up
        raw.sendall(f"GET /{folder}/{name} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        got = b""
        while some := raw.recv(1 << 16):
            got += some
    assert got.split()[1] == b"404", got[:200]
    assert b"root:" not in got


@pytest.mark.parametrize("uid", ["../model", "..%2f..%2fetc%2fpasswd", "%2e%2e", "a/b/c", "%00", "x" * 1000])
def test_uids_are_names_not_paths(client, uid):
    assert client.delete(f"/labels/{uid}").status_code in (404, 405)
    assert client.get("/model").json()["labels"] == 60


def test_errors_have_one_form(client):
    for method, path, status in (
        ("GET", "/nothing", 404), ("GET", "/labels/x", 405), ("PUT", "/predict", 405), ("GET", "/predict", 405),
        ("TRACE", "/", 405), ("POST", "/health", 405),
        ("DELETE", "/labels/" + "x" * 1001, 422), ("DELETE", "/labels/", 422),
    ):  # fmt: skip
        answer = client.request(method, path)
        assert answer.status_code == status, (method, path)
        assert answer.json()["error"].keys() == {"code", "message", "where"}
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers.items() >= HEADERS.items()
    assert client.put("/labels").headers["allow"] == "DELETE, GET, POST"


def test_the_api_document_is_complete(client):
    document = client.get("/openapi.json").json()
    assert set(document["paths"]) == {
        "/predict", "/explain", "/labels", "/labels/{uid}", "/model", "/health", "/metrics",
    }  # fmt: skip
    schemas = document["components"]["schemas"]
    assert "HTTPValidationError" not in schemas
    predict = schemas["Predict"]
    assert predict["additionalProperties"] is False
    assert predict["properties"]["texts"]["maxItems"] == predict["properties"]["k"]["maximum"] == 1000
    assert predict["properties"]["heads"]["enum"] == ["all", *client.get("/model").json()["heads"]]
    for item in document["paths"].values():
        for operation in item.values():
            assert operation["summary"]
            assert operation["description"]
            assert {"400", "401", "403", "413", "429", "500", "503"} <= operation["responses"].keys()
