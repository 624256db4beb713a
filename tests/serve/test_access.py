"""Access checks: Host, Origin, API key."""

import pytest

import megalabel as ml
from megalabel.serve.middleware import AccessPolicy
from megalabel.serve.settings import LOOPBACK, Settings

BODY = {"texts": ["a"]}


@pytest.fixture(scope="module")
def locked(run, serving):
    """A server that needs an API key."""
    with serving(ml.Model.load(run), api_key="sesame") as client:
        yield client


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "LOCALHOST:8000", "[::1]:8000", "localhost."])
def test_allowed_hosts(client, host):
    assert client.get("/model", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8000", "127.0.0.1.evil.example", "", "localhost@evil.example", "localhost:x", "a b",
     "[::1", "0x7f.1", "169.254.169.254", "localhost/", "*"],
)  # fmt: skip
def test_other_hosts_are_refused(client, host):
    answer = client.get("/model", headers={"Host": host})
    assert answer.status_code == 403
    assert "--allow-host" in answer.json()["error"]["message"]


def test_hosts_can_be_added():
    policy = AccessPolicy(Settings(hosts=(*LOOPBACK, "labels.example")))
    assert policy.check("GET", "/model", {"host": "Labels.Example:80"}) is None
    assert policy.check("GET", "/model", {"host": "10.0.0.7"}) is not None
    assert AccessPolicy(Settings(any_address=True)).check("GET", "/model", {"host": "10.0.0.7:8000"}) is None
    assert AccessPolicy(Settings(any_address=True)).check("GET", "/model", {"host": "evil.example"}) is not None
    assert AccessPolicy(Settings(hosts=("*",))).check("GET", "/model", {"host": "any.example"}) is None


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_pages_of_other_sites_are_refused(client, headers):
    for method, path in (("POST", "/predict"), ("DELETE", "/labels"), ("PATCH", "/labels/x"), ("POST", "/labels")):
        assert client.request(method, path, json=BODY, headers=headers).status_code == 403
    answer = client.get("/model", headers=headers)
    assert answer.status_code == 200
    assert not any(name.lower().startswith("access-control") for name in answer.headers)


def test_the_playground_is_allowed(client):
    same_origin = {"Origin": f"http://127.0.0.1:{client.port}", "Sec-Fetch-Site": "same-origin"}
    assert client.post("/predict", json=BODY, headers=same_origin).status_code == 200


def test_forms_are_refused(client):
    for content_type in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""):
        answer = client.post("/predict", content=b'{"texts": ["a"]}', headers={"Content-Type": content_type})
        assert (answer.status_code, answer.json()["error"]["code"]) == (415, "unsupported_media_type")
    headers = {"Content-Type": "Application/JSON; charset=utf-8"}
    assert client.post("/predict", content=b'{"texts": ["a"]}', headers=headers).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [{"Authorization": "Bearer sesame"}, {"Authorization": "bearer sesame"}, {"X-API-Key": "sesame"}],
)
def test_requests_with_the_key_are_answered(locked, headers):
    assert locked.get("/model", headers=headers).status_code == 200
    assert locked.post("/predict", json=BODY, headers=headers).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [{}, {"Authorization": "Bearer"}, {"Authorization": "Bearer Sesame"}, {"Authorization": "Basic sesame"},
     {"X-API-Key": ""}, {"X-API-Key": "sesame sesame"}, {"X-API-Key": b"s\xc3\xa9same"}, {"Authorization": "sesame"}],
)  # fmt: skip
def test_requests_without_the_key_are_refused(locked, headers):
    for method, path in (
        ("POST", "/predict"), ("POST", "/explain"), ("GET", "/labels"), ("POST", "/labels"), ("DELETE", "/labels"),
        ("DELETE", "/labels/x"), ("PATCH", "/labels/x"), ("GET", "/model"), ("GET", "/metrics"),
        ("GET", "/openapi.json"), ("GET", "/nothing"), ("GET", "/page"),
    ):  # fmt: skip
        answer = locked.request(method, path, headers=headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "unauthorised"), path
        assert answer.headers["WWW-Authenticate"] == "Bearer"


def test_public_paths_need_no_key(locked):
    for path in ("/health", "/docs", "/docs/docs.js"):
        assert locked.get(path).status_code == 200
    assert locked.get("/page/nothing.js").status_code == 404


def test_the_openapi_document_names_the_key(locked):
    document = locked.get("/openapi.json", headers={"X-API-Key": "sesame"}).json()
    assert document["paths"]["/predict"]["post"]["security"] == [{"bearer": []}, {"header": []}]
    assert document["paths"]["/health"]["get"]["security"] == []
