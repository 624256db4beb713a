"""The retriever for Haystack; tests/packaging/test_stacks.py runs this file where haystack-ai is installed."""

import asyncio
import os
import sys
from importlib.util import find_spec

import pytest

if find_spec("haystack") is None:
    pytest.skip("haystack-ai is not installed here", allow_module_level=True)

from megalabel.errors import SettingError
from megalabel.integrations.haystack import MegalabelRetriever  # before haystack: it turns telemetry off

from haystack import Pipeline  # isort: skip
from haystack.components.joiners import DocumentJoiner  # isort: skip

DETAILS = {f"lbl-{place}": {"kind": "clothes" if place in (0, 1, 4) else "other"} for place in range(6)}
OTHER = {"field": "meta.kind", "operator": "==", "value": "other"}


@pytest.fixture
def model(make_model):
    return make_model()


def found(documents):
    return [(each.id, each.content, pytest.approx(each.score, abs=1e-5)) for each in documents]


def expected(model, text, k):
    return [(each.uid, each.text, pytest.approx(each.score, abs=1e-5)) for each in model.predict([text], k)[0]]


def test_documents_are_the_labels(model):
    retriever = MegalabelRetriever(model, 3, details=DETAILS)
    documents = retriever.run("red shoe")["documents"]
    assert found(documents) == expected(model, "red shoe", 3)
    assert documents[0].meta == {"kind": "clothes", "uid": "lbl-0"}
    assert found(asyncio.run(retriever.run_async("red shoe", top_k=2))["documents"]) == found(documents)[:2]
    assert found(retriever.run("red shoe", threshold=documents[1].score)["documents"]) == found(documents)[:2]
    rows = retriever.run_batch(["red shoe", "sort"])
    assert [found(row) for row in rows] == [found(documents), expected(model, "sort", 3)]


def test_filters_come_before_the_cut(model):
    other = [uid for uid, _, _ in expected(model, "green", 6) if DETAILS[uid]["kind"] == "other"]
    for retriever, more in (
        (MegalabelRetriever(model, 2, details=DETAILS), {"filters": OTHER}),
        (MegalabelRetriever(model, 2, details=DETAILS, filters=OTHER), {}),
    ):
        assert [each.id for each in retriever.run("green", **more)["documents"]] == other[:2]
    narrower = {"operator": "AND", "conditions": [OTHER, {"field": "meta.uid", "operator": "in", "value": other[2:]}]}
    assert [each.id for each in retriever.run("green", narrower)["documents"]] == other[2:]


def test_in_a_pipeline_that_is_saved(model, tmp_path):
    model.save(tmp_path / "model")
    pipeline = Pipeline()
    pipeline.add_component("find", MegalabelRetriever(tmp_path / "model", 2, documents={"lbl-0": "whole"}))
    pipeline.add_component("join", DocumentJoiner())
    pipeline.connect("find.documents", "join.documents")
    again = Pipeline.loads(pipeline.dumps(), allowed_modules=["megalabel.integrations.haystack"])
    answer = again.run({"find": {"query": "red shoe"}})["join"]["documents"]
    assert [each.id for each in answer] == [uid for uid, _, _ in expected(model, "red shoe", 2)]
    assert answer[0].content == "whole"
    with pytest.raises(SettingError, match="give its folder"):
        MegalabelRetriever(model).to_dict()
    with pytest.raises(SettingError, match="k is 0"):
        MegalabelRetriever(model, 0).run("red")


def test_an_asynchronous_pipeline(model):
    pipeline = Pipeline()
    pipeline.add_component("find", MegalabelRetriever(model, 2))
    answer = asyncio.run(pipeline.run_async({"find": {"query": "sort"}}))
    assert found(answer["find"]["documents"]) == expected(model, "sort", 2)


def test_nothing_is_reported():
    assert os.environ["HAYSTACK_TELEMETRY_ENABLED"] == "False"
    assert sys.modules["haystack.telemetry._telemetry"].telemetry is None
