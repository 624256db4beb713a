"""POST /explain."""

from dataclasses import asdict

import pytest


def test_same_as_the_model(client, model):
    uid = model.labels.uids[3]
    for label in (None, uid):
        found = client.post("/explain", json={"text": "some text", "label": label, "k": 2}).json()
        expected = asdict(model.explain("some text", label, 2))
        assert found.keys() == expected.keys()
        assert (found["uid"], found["rank"], found["points"]) == (expected["uid"], expected["rank"], expected["points"])
        assert found["total"] == pytest.approx(expected["total"], rel=1e-4)
        assert [part["head"] for part in found["heads"]] == model.heads
        assert len(found["nearest"]) == len(expected["nearest"]) <= 2


def test_unknown_label(client):
    answer = client.post("/explain", json={"text": "some text", "label": "nobody"})
    assert (answer.status_code, answer.json()["error"]["where"]) == (404, "label")


@pytest.mark.parametrize(
    "body", [{}, {"text": 1}, {"text": "a", "k": 0}, {"text": "a", "k": 1001}, {"text": "a" * 100_001}]
)
def test_bad_bodies(client, body):
    assert client.post("/explain", json=body).status_code == 422
