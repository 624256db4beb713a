"""GET, POST, DELETE and PATCH /labels."""

import threading
from urllib.parse import quote

import pytest

import megalabel as ml


@pytest.fixture
def live(run, serving):
    """A server whose labels a test may change."""
    with serving(ml.Model.load(run)) as client:
        yield client


def test_list_and_search(client, model):
    everything = client.get("/labels", params={"limit": 1000}).json()
    assert everything["total"] == len(everything["labels"]) == len(model.labels)
    assert [label["id"] for label in everything["labels"]] == list(range(len(model.labels)))
    first = everything["labels"][0]
    assert first == {
        "id": 0, "uid": model.labels.uids[0], "text": model.labels.texts[0],
        "points": int(model.stats.counts[0]), "frequency": first["frequency"],
    }  # fmt: skip
    word = model.labels.texts[7].split()[0]
    matches = client.get("/labels", params={"find": word.upper()}).json()
    expected = [label for label, text in enumerate(model.labels.texts) if word.casefold() in text.casefold()]
    assert [label["id"] for label in matches["labels"]] == expected[:50]
    assert matches["total"] == len(expected)
    page = client.get("/labels", params={"offset": 58, "limit": 5}).json()
    assert [label["id"] for label in page["labels"]] == [58, 59]
    assert client.get("/labels", params={"offset": 2**31 - 1}).json() == {"total": 60, "labels": []}
    assert client.get("/labels", params={"find": "nothing has this"}).json() == {"total": 0, "labels": []}


def test_labels_by_training_points(client, model):
    counts = model.stats.counts.tolist()
    for sort, sign in (("most", -1), ("fewest", 1)):
        expected = sorted(range(60), key=lambda label: sign * counts[label])  # equal ones by id
        listed = client.get("/labels", params={"sort": sort, "limit": 40}).json()
        assert [label["id"] for label in listed["labels"]] == expected[:40]
        page = client.get("/labels", params={"sort": sort, "limit": 40, "offset": 40}).json()
        assert [label["id"] for label in page["labels"]] == expected[40:]
    word = model.labels.texts[7].split()[0]
    found = client.get("/labels", params={"sort": "most", "find": word}).json()["labels"]
    assert [label["points"] for label in found] == sorted((label["points"] for label in found), reverse=True)


@pytest.mark.parametrize(
    ("query", "where"),
    [("limit=0", "limit"), ("limit=1001", "limit"), ("offset=-1", "offset"), ("limit=x", "limit"), ("sort=x", "sort")],
)
def test_bad_queries(client, query, where):
    answer = client.get(f"/labels?{query}")
    assert (answer.status_code, answer.json()["error"]["where"]) == (422, where)


def test_add_find_rename_remove(live):
    answer = live.post("/labels", json={"texts": ["brand new thing"], "uids": ["new/one"]})
    assert answer.status_code == 201
    assert answer.json() == {"labels": [{"id": 60, "uid": "new/one", "text": "brand new thing"}]}
    listed = live.get("/labels", params={"find": "BRAND"}).json()["labels"]
    assert listed == [{"id": 60, "uid": "new/one", "text": "brand new thing", "points": 0, "frequency": "unseen"}]
    ask = {"texts": ["brand new thing"], "k": 1, "heads": "dual"}
    assert live.post("/predict", json=ask).json()["predictions"][0][0]["uid"] == "new/one"
    renamed = live.patch("/labels/new%2Fone", json={"text": "another thing"})
    assert renamed.json() == {"id": 60, "uid": "new/one", "text": "another thing"}
    assert live.get("/model").json()["labels"] == 61
    assert live.delete("/labels/new/one").json() == {"removed": 1}
    assert live.delete("/labels/new/one").status_code == 404
    assert live.post("/labels", json={"texts": ["again"], "uids": ["new/one"]}).status_code == 422
    assert live.get("/model").json()["labels"] == 60


def test_generated_uids_and_removing_several(live):
    uids = [label["uid"] for label in live.post("/labels", json={"texts": ["one", "two"]}).json()["labels"]]
    assert uids == ["added-60", "added-61"]
    assert live.request("DELETE", "/labels", json={"uids": uids}).json() == {"removed": 2}
    assert live.request("DELETE", "/labels", json={"uids": []}).json() == {"removed": 0}


def test_labels_are_removed_all_or_none(live):
    uid = live.get("/labels").json()["labels"][0]["uid"]
    answer = live.request("DELETE", "/labels", json={"uids": [uid, "nobody"]})
    assert (answer.status_code, answer.json()["error"]["where"]) == (404, "uids[1]")
    assert live.request("DELETE", "/labels", json={"uids": [uid, uid]}).status_code == 422
    everything = [label["uid"] for label in live.get("/labels", params={"limit": 1000}).json()["labels"]]
    assert live.request("DELETE", "/labels", json={"uids": everything}).status_code == 422
    assert live.get("/model").json()["labels"] == 60


@pytest.mark.parametrize(
    ("body", "where"),
    [
        ({"texts": [" "]}, "texts[0]"),
        ({"texts": ["a", ""]}, "texts[1]"),
        ({"texts": ["a"], "uids": []}, "uids"),
        ({"texts": ["a"], "uids": [" "]}, "uids[0]"),
        ({"texts": ["a"], "uids": ["x" * 1001]}, "uids[0]"),
        ({"texts": ["a", "b"], "uids": ["x", "x"]}, None),
        ({"texts": ["a" * 100_001]}, "texts[0]"),
        ({"texts": ["a"] * 1001}, "texts"),
        ({"uids": ["a"]}, "texts"),
    ],
)
def test_invalid_labels(client, body, where):
    answer = client.post("/labels", json=body)
    assert (answer.status_code, answer.json()["error"]["where"]) == (422, where)
    assert client.get("/model").json()["labels"] == 60


def test_renaming_needs_a_known_label_and_a_valid_text(client):
    assert client.patch("/labels/nobody", json={"text": "a"}).status_code == 404
    uid = client.get("/labels").json()["labels"][0]["uid"]
    assert client.patch(f"/labels/{uid}", json={"text": " "}).status_code == 422
    assert client.patch(f"/labels/{uid}", json={"text": "x" * 100_001}).status_code == 422


def test_read_only(run, serving):
    with serving(ml.Model.load(run), read_only=True) as client:
        assert client.get("/model").json()["read_only"] is True
        uid = client.get("/labels").json()["labels"][0]["uid"]
        answers = [
            client.post("/labels", json={"texts": ["a"]}),
            client.request("DELETE", "/labels", json={"uids": [uid]}),
            client.delete(f"/labels/{uid}"),
            client.patch(f"/labels/{uid}", json={"text": "a"}),
        ]
        assert [answer.status_code for answer in answers] == [403] * 4
        assert answers[0].json()["error"]["message"] == "the labels of this server are read-only"


def test_added_labels_are_limited(run, serving):
    with serving(ml.Model.load(run), added=2) as client:
        assert client.post("/labels", json={"texts": ["a", "b"]}).status_code == 201
        answer = client.post("/labels", json={"texts": ["c"]})
        assert (answer.status_code, "--max-added" in answer.json()["error"]["message"]) == (422, True)


def test_changes_under_load_are_atomic(live):
    """While a label is added and removed, every answer has it with its uid and text, or not at all."""
    wrong, stop = [], threading.Event()

    def ask():
        import httpx

        with httpx.Client(base_url=live.base_url, timeout=60) as client:
            while not stop.is_set():
                answer = client.post("/predict", json={"texts": ["brand new thing"] * 3, "k": 1, "heads": "dual"})
                for row in answer.json()["predictions"]:
                    if row[0]["uid"].startswith("added-") and row[0]["text"] != "brand new thing":
                        wrong.append(row)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(10):
        (label,) = live.post("/labels", json={"texts": ["brand new thing"]}).json()["labels"]
        request = {"texts": ["brand new thing"], "k": 1, "heads": "dual"}
        assert live.post("/predict", json=request).json()["predictions"][0][0] | {"score": 0} == label | {"score": 0}
        assert live.delete(f"/labels/{label['uid']}").json() == {"removed": 1}
        assert live.post("/predict", json=request).json()["predictions"][0][0]["uid"] != label["uid"]
    stop.set()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize(
    "uid",
    ["a/b", "/a", "a/", "a//b", "a?b=c", "a#b", "a%b", "100%25", "a b", " a ", "a+b", "a;b", "a&b", "..", "../x", "\\",
     '"', "é", "e\u0301", "ﬁ", "中文", "👩\u200d🔬", "\u202eabc", "x" * 1000, "中" * 1000],
)  # fmt: skip
def test_every_uid_has_a_path(client, uid):
    """Percent-encoded; uids are compared as they are, without normalising Unicode."""
    path = f"/labels/{quote(uid, safe='')}".replace("..", "%2e%2e")
    assert client.post("/labels", json={"texts": ["a label"], "uids": [uid]}).status_code == 201
    assert client.patch(path, json={"text": "another text"}).json()["uid"] == uid
    assert client.delete(path).json() == {"removed": 1}
    assert client.delete(path).status_code == 404


def test_uids_from_training_have_a_path(run, serving):
    """A data set may have uids that could not be added now."""
    model = ml.Model.load(run)
    uids = [f"first{model.labels.uids[0]}", "a", "a\n", "\n", "a\nb", "\x00", "a\r\n", "x" * 5_000]
    model.labels = ml.Labels(model.labels.texts, [*uids, *model.labels.uids[len(uids) :]])
    with serving(model) as client:
        for label, uid in reversed(list(enumerate(uids))):
            answer = client.patch(f"/labels/{quote(uid, safe='')}", json={"text": "another text"})
            assert (answer.json()["id"], answer.json()["uid"]) == (label, uid)
            assert client.delete(f"/labels/{quote(uid, safe='')}").json() == {"removed": 1}
        assert client.get("/model").json()["labels"] == 60 - len(uids)


@pytest.mark.parametrize("uid", ["a\nb", "a\n", "\x00", "a\rb", "a\tb", "\x7f", "a\x85", "a\u2028b", "\x1b[31m"])
def test_control_characters_in_uids_are_refused(client, uid):
    before = client.get("/model").json()["labels"]
    answer = client.post("/labels", json={"texts": ["one", "two"], "uids": ["fine", uid]})
    assert answer.status_code == 422
    message = answer.json()["error"]["message"]
    assert "control character" in message
    assert message.isprintable()
    assert client.get("/model").json()["labels"] == before


def test_an_invalid_path_is_no_uid(live):
    """Bytes that are not UTF-8 must not be taken for the character that often stands for them."""
    assert live.post("/labels", json={"texts": ["a label"], "uids": ["\ufffd"]}).status_code == 201
    assert live.delete("/labels/%ff").status_code == 422
    assert live.delete("/labels/%EF%BF%BD").json() == {"removed": 1}
