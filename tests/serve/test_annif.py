"""The routes of Annif's API: what its clients send and read, and everything that can be wrong with a request."""

import dataclasses

import pytest

import megalabel as ml
from megalabel.data.concepts import Concept

SUGGEST = "/v1/projects/pets/suggest"
BATCH = "/v1/projects/pets/suggest-batch"
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


@pytest.fixture(scope="module")
def client(run, serving):
    model = ml.Model.load(run)
    concepts = {label: Concept(f"name {label}", f"N{label}") for label in range(30)}
    model.labels = dataclasses.replace(model.labels, concepts=concepts)
    with serving(model, annif="pets", language="fi", text_characters=1_000, k=20) as client:
        client.model = model
        yield client


def test_the_project_as_annif_describes_one(client):
    project = client.get("/v1/projects/pets").json()
    vocabulary = {"vocab_id": "pets", "languages": ["fi"], "size": 60, "loaded": True}
    assert project == {
        "project_id": "pets", "name": "pets (auto)", "language": "fi", "backend": {"backend_id": "megalabel"},
        "vocab": vocabulary, "vocab_language": "fi", "is_trained": True, "modification_time": None,
    }  # fmt: skip
    assert client.get("/v1/projects").json() == {"projects": [project]}
    assert client.get("/v1/vocabs").json() == {"vocabs": [vocabulary]}
    assert client.get("/v1/").json().keys() == {"title", "version"}


def test_suggestions_are_the_predictions(client, data):
    text = data.test.texts[0]
    found = client.post(SUGGEST, data={"text": text, "limit": 7, "metadata_title": "x", "project": "y"}).json()
    labels = client.post("/predict", json={"texts": [text], "k": 7}).json()["predictions"][0]
    assert [one["uri"] for one in found["results"]] == [label["uid"] for label in labels]
    assert [one["score"] for one in found["results"]] == [label["score"] for label in labels]
    for one, label in zip(found["results"], labels, strict=True):
        known = label["id"] < 30
        assert one["label"] == (f"name {label['id']}" if known else label["text"])
        assert one["notation"] == (f"N{label['id']}" if known else None)
        assert 0 < one["score"] <= 1


def test_limit_and_threshold(client, data):
    text = data.test.texts[0]

    def scores(**fields):
        return [one["score"] for one in client.post(SUGGEST, data={"text": text, **fields}).json()["results"]]

    assert len(scores()) == 10
    assert len(scores(limit=3)) == 3
    assert scores(limit=0) == []
    assert len(scores(limit=100_000)) == 20  # --max-k
    cut = scores()[4]
    assert scores(threshold=cut) == [score for score in scores() if score >= cut]
    assert scores(language="fi") == scores()


def test_a_batch_gives_what_single_texts_give(client, data):
    texts = data.test.texts[:3]
    documents = [{"text": text, "document_id": f"d{i}"} for i, text in enumerate(texts[:2])]
    documents.append({"text": texts[2], "metadata": {"title": "x"}})
    answer = client.post(BATCH, json={"documents": documents}, params={"limit": 4}).json()
    assert [row["document_id"] for row in answer] == ["d0", "d1", None]
    for text, row in zip(texts, answer, strict=True):
        single = client.post(SUGGEST, data={"text": text, "limit": 4}).json()["results"]
        assert [one["uri"] for one in row["results"]] == [one["uri"] for one in single]
        assert [one["score"] for one in row["results"]] == pytest.approx([one["score"] for one in single], abs=1e-5)
    assert client.post(BATCH, json={"documents": []}).json() == []


def test_scores_that_are_no_probabilities_lie_between_0_and_1(summed_run, serving, data):
    with serving(ml.Model.load(summed_run), annif="pets") as client:
        found = client.post(SUGGEST, data={"text": data.test.texts[0]}).json()["results"]
        labels = client.post("/predict", json={"texts": [data.test.texts[0]], "k": 10}).json()["predictions"][0]
    assert [one["uri"] for one in found] == [label["uid"] for label in labels]
    scores = [one["score"] for one in found]
    assert all(0 < score < 1 for score in scores)
    assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize(
    ("status", "message", "request_"),
    [
        (404, "project 'cats' not found; this server has 'pets'", {"url": "/v1/projects/cats/suggest"}),
        (400, "text is missing", {"data": {"limit": "3"}}),
        (400, "limit must be a whole number from 0, not '-1'", {"data": {"text": "a", "limit": "-1"}}),
        (400, "limit must be a whole number", {"data": {"text": "a", "limit": "1_0"}}),
        (400, "threshold must be a number from 0 to 1, not 'nan'", {"data": {"text": "a", "threshold": "nan"}}),
        (400, "language 'sv' is not supported", {"data": {"text": "a", "language": "sv"}}),
        (413, "text has 1,001 characters", {"data": {"text": "a" * 1_001}}),
        (413, "the form exceeds", {"data": {"text": "a" * 100_000}}),
        (415, "application/x-www-form-urlencoded", {"json": {"text": "a"}}),
        (415, "application/x-www-form-urlencoded", {"files": {"text": b"a"}}),
        (400, "the form cannot be read", {"content": b"text=%ff", "headers": FORM}),
        (400, "the form cannot be read", {"content": b"\xff=a", "headers": FORM}),
        (400, "the form cannot be read", {"content": b"a=b&" * 2_000, "headers": FORM}),
        (415, "application/json", {"url": BATCH, "data": {"documents": "a"}}),
        (400, "documents is missing", {"url": BATCH, "json": {}}),
        (400, "the body is not a JSON object", {"url": BATCH, "json": [1]}),
        (400, "documents[1].text is missing", {"url": BATCH, "json": {"documents": [{"text": "a"}, {}]}}),
        (400, "documents: list should have at most 32", {"url": BATCH, "json": {"documents": [{"text": "a"}] * 33}}),
        (413, "documents[1].text has", {"url": BATCH, "json": {"documents": [{"text": "a"}, {"text": "a" * 1_001}]}}),
        (400, "not valid JSON", {"url": BATCH, "content": b"{", "headers": {"Content-Type": "application/json"}}),
        (403, "does not learn", {"url": "/v1/projects/pets/learn", "json": [{"text": "a", "subjects": []}]}),
    ],
)
def test_mistakes_are_problems_in_one_line(client, status, message, request_):
    answer = client.post(**{"url": SUGGEST, **request_})
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["status"] == status
    assert message in problem["detail"]
    assert problem["detail"] == problem["error"]["message"]
    assert "\n" not in problem["detail"]
    assert problem.keys() == {"type", "title", "status", "detail", "error"}


def test_the_other_protections_hold_here_too(client, run, serving):
    answer = client.post(SUGGEST, data={"text": "a"}, headers={"Origin": "http://evil.example"})
    assert answer.status_code == 403
    assert client.post(SUGGEST, content=b"text=" + b"a" * (17 << 20), headers=FORM).status_code == 413
    assert client.post(SUGGEST, data={"text": "a"}, headers={"Host": "evil.example"}).status_code == 403
    client.post(SUGGEST, data={"text": "a"})
    counted = 'megalabel_requests_total{method="POST",route="/v1/projects/{project_id}/suggest",status="200"}'
    assert counted in client.get("/metrics").text
    with serving(ml.Model.load(run), annif="pets", api_key="secret") as locked:
        assert locked.get("/v1/projects/pets").status_code == 401
        assert locked.get("/v1/projects/pets", headers={"X-API-Key": "secret"}).json()["is_trained"] is True


def test_without_the_option_there_are_no_such_routes(run, serving):
    with serving(ml.Model.load(run)) as client:
        assert client.get("/v1/projects").status_code == 404
        assert not any(path.startswith("/v1") for path in client.get("/openapi.json").json()["paths"])


def test_added_and_removed_labels(run, serving):
    with serving(ml.Model.load(run), annif="pets") as client:
        before = client.get("/v1/vocabs").json()["vocabs"][0]["size"]
        client.post("/labels", json={"texts": ["zebra zebra"], "uids": ["http://example.org/zebra"]})
        assert client.get("/v1/vocabs").json()["vocabs"][0]["size"] == before + 1
        found = client.post(SUGGEST, data={"text": "zebra zebra", "limit": 60}).json()["results"]
        added = next(one for one in found if one["uri"] == "http://example.org/zebra")
        assert (added["label"], added["notation"]) == ("zebra zebra", None)


def test_the_command(run, start):
    server = start(run, "--annif", "--language", "sv")
    name = run.name
    project = server.client.get(f"/v1/projects/{name}").json()
    assert (project["project_id"], project["language"]) == (name, "sv")
    code, _, err = server.stop()
    assert code == 0
    assert f"endpoint={server.url}/v1/projects/{name}/suggest" in err
