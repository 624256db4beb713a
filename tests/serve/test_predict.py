"""POST /predict and POST /explain return what the model returns."""

from dataclasses import asdict

import pytest

import megalabel as ml

TEXTS = ["some text", "another text, with more words", "", "ñandú 漢字 \x00 🙂"]


def rows(client, **body):
    answer = client.post("/predict", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()["predictions"]


def test_predictions_equal_those_of_the_model(client, model, data):
    texts = [*TEXTS, *data.test.texts[:20]]
    expected = model.predict(texts, k=7)
    answers = rows(client, texts=texts, k=7)
    assert [[(label["id"], label["uid"], label["text"]) for label in row] for row in answers] == [
        [(label.id, label.uid, label.text) for label in row] for row in expected
    ]
    scores = [[label["score"] for label in row] for row in answers]
    assert scores == [pytest.approx([label.score for label in row], rel=1e-5, abs=1e-7) for row in expected]


def test_defaults(client):
    (row,) = rows(client, texts=["some text"], k=5)
    assert len(row) == 5
    assert set(row[0]) == {"id", "uid", "text", "score"}
    assert rows(client, texts=[]) == []
    assert rows(client, texts=["some text"], k=5.0, heads="all", tail=None, min_score=None, details=False) == [row]


def test_without_k_the_threshold_of_the_model_decides(client, model, data):
    texts = list(data.test.texts[:20])
    stored = client.get("/model").json()["threshold"]
    assert {"value": stored["value"], "goal": "micro-f1"} == model.thresholds.choose().brief()
    assert len(stored["curve"]) > 5 and stored["rows"] == model.thresholds.rows
    for asked in ({}, {"goal": "sample-f1"}, {"precision": stored["curve"][-1]["precision"] / 100}):
        answer = client.post("/predict", json={"texts": texts, **asked}).json()
        assert answer["threshold"] == model.thresholds.choose(**asked).brief()
        expected = model.predict(texts, **asked)
        assert [[label["uid"] for label in row] for row in answer["predictions"]] == [
            [label.uid for label in row] for row in expected
        ]
        assert all(label["score"] >= answer["threshold"]["value"] for row in answer["predictions"] for label in row)
    assert "threshold" not in client.post("/predict", json={"texts": texts, "k": 3}).json()


def test_without_k_and_without_a_threshold_five_labels_are_returned(client):
    for asked in ({"heads": "dual"}, {"tail": 0.5}):
        answer = client.post("/predict", json={"texts": ["some text"], **asked}).json()
        assert "threshold" not in answer and len(answer["predictions"][0]) == 5
        failed = client.post("/predict", json={"texts": ["some text"], "precision": 0.5, **asked})
        assert failed.status_code == 422 and "precision needs a threshold" in failed.json()["error"]["message"]


def test_details(client, model):
    (row,) = rows(client, texts=["some text"], k=3, details=True)
    for label in row:
        assert label["points"] == model.stats.counts[model.labels.uids.index(label["uid"])]
        assert label["frequency"] == ("tail" if label["points"] < 10 else "torso" if label["points"] <= 100 else "head")
        assert list(label["heads"]) == model.heads
    (plain,) = rows(client, texts=["some text"], k=3)
    assert [{name: label[name] for name in plain[0]} for label in row] == plain


def test_heads_and_tail(client, model):
    for settings in ({"heads": "dual"}, {"heads": "linear"}, {"tail": 1.0}):
        (row,) = rows(client, texts=["some text"], k=60, **settings)
        (expected,) = model.predict(["some text"], k=60, **settings)
        assert [label["uid"] for label in row] == [label.uid for label in expected]


def test_min_score_omits_labels(client):
    (row,) = rows(client, texts=["some text"], k=20)
    middle = row[len(row) // 2]["score"]
    (kept,) = rows(client, texts=["some text"], k=20, min_score=middle)
    assert kept == [label for label in row if label["score"] >= middle]
    assert rows(client, texts=["some text"], min_score=1e9) == [[]]


def test_an_empty_text_has_no_labels(client):
    answer = client.post("/predict", json={"texts": ["", "some words", " "], "k": 2, "details": True})
    assert [len(labels) for labels in answer.json()["predictions"]] == [0, 2, 0]


def test_k_above_the_number_of_labels_returns_all(client, model):
    (row,) = rows(client, texts=["some text"], k=1000, heads="dual")
    assert len(row) == len(model.labels)


def test_a_thousand_texts(client, model, data):
    texts = [f"{text} {number}" for number, text in enumerate((list(data.train.texts) * 4)[:1000])]
    answers = rows(client, texts=texts, k=2)
    assert [[label["uid"] for label in row] for row in answers] == [
        [label.uid for label in row] for row in model.predict(texts, k=2)
    ]


@pytest.mark.parametrize(
    ("body", "where", "message"),
    [
        ({"texts": ["a"] * 1001}, "texts", "1,001 texts, but at most 1,000 are accepted per request"),
        ({"texts": ["a"], "k": 1001}, "k", "at most 1,000 labels are returned"),
        ({"texts": ["a"], "k": 10**9}, "k", "--max-k"),
        ({"texts": ["a"], "k": 10**300}, "k", "--max-k"),
        ({"texts": ["a", "b" * 100_001]}, "texts[1]", "--max-characters"),
        ({"texts": ["a", 3]}, "texts[1]", "string"),
        ({"texts": "a"}, "texts", "list"),
        ({"texts": None}, "texts", "list"),
        ({"k": 5}, "texts", "texts is missing"),
        ({"text": ["a"]}, "text", "did you mean 'texts'?"),
        ({"texts": ["a"], "k": 0}, "k", "greater than or equal to 1"),
        ({"texts": ["a"], "k": -1}, "k", "greater than or equal to 1"),
        ({"texts": ["a"], "k": 3, "precision": 0.9}, None, "precision and k both say how many labels"),
        ({"texts": ["a"], "precision": 1.5}, "precision", "less than or equal to 1"),
        ({"texts": ["a"], "goal": "f1"}, "goal", "micro-f1"),
        ({"texts": ["a"], "k": "5"}, "k", "integer"),
        ({"texts": ["a"], "k": True}, "k", "integer"),
        ({"texts": ["a"], "k": 2.5}, "k", "integer"),
        ({"texts": ["a"], "tail": 1.5}, "tail", "less than or equal to 1"),
        ({"texts": ["a"], "heads": "dua"}, "heads", "did you mean 'dual'?"),
        ({"texts": ["a"], "heads": "x" * 100_000}, "heads", "has no head"),
        ({"texts": ["a"], "details": 1}, "details", "boolean"),
        (["a"], None, "not a JSON object"),
    ],
)
def test_invalid_bodies(client, body, where, message):
    answer = client.post("/predict", json=body)
    assert answer.status_code == 422
    error = answer.json()["error"]
    assert (error["code"], error["where"]) == ("invalid", where)
    assert message in error["message"]
    assert len(error["message"]) < 500


def test_tail_needs_a_fused_model(summed_run, serving):
    with serving(ml.Model.load(summed_run)) as client:
        answer = client.post("/predict", json={"texts": ["a"], "tail": 0.5})
        assert (answer.status_code, answer.json()["error"]["where"]) == (422, "tail")
        assert client.get("/model").json()["fused"] is False
        assert client.post("/predict", json={"texts": ["a"], "tail": None}).status_code == 200


def test_limits_come_from_the_settings(run, serving):
    with serving(ml.Model.load(run), texts=2, k=3, text_characters=10) as client:
        assert client.get("/model").json()["limits"] | {"body_bytes": 0} == {
            "texts": 2, "k": 3, "body_bytes": 0, "text_characters": 10,
        }  # fmt: skip
        for body in ({"texts": ["a"] * 3}, {"texts": ["a"], "k": 4}, {"texts": ["a" * 11]}):
            assert client.post("/predict", json=body).status_code == 422
        assert client.post("/predict", json={"texts": ["a" * 10] * 2, "k": 3}).status_code == 200


def test_explanations_equal_those_of_the_model(client, model):
    uid = model.labels.uids[3]
    for label in (None, uid):
        answer = client.post("/explain", json={"text": "some text", "label": label, "k": 2}).json()
        expected = asdict(model.explain("some text", label, 2))
        assert answer.keys() == expected.keys()
        for name in ("uid", "rank", "points"):
            assert answer[name] == expected[name]
        assert answer["total"] == pytest.approx(expected["total"], rel=1e-4)
        assert [part["head"] for part in answer["heads"]] == model.heads
        assert len(answer["nearest"]) == len(expected["nearest"]) <= 2


def test_explaining_an_unknown_label(client):
    answer = client.post("/explain", json={"text": "some text", "label": "nobody"})
    assert (answer.status_code, answer.json()["error"]["where"]) == (404, "label")


@pytest.mark.parametrize(
    "body", [{}, {"text": 1}, {"text": "a", "k": 0}, {"text": "a", "k": 1001}, {"text": "a" * 100_001}]
)
def test_explaining_invalid_bodies(client, body):
    assert client.post("/explain", json=body).status_code == 422
