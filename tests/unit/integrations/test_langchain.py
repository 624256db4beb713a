"""The retriever for LangChain; tests/packaging/test_stacks.py runs this file where langchain-core is installed."""

import asyncio

import pytest

pytest.importorskip("langchain_core", reason="langchain-core is not installed here")

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.runnables import RunnableLambda

from megalabel.errors import SettingError
from megalabel.integrations.langchain import MegalabelRetriever

DETAILS = {f"lbl-{place}": {"kind": "clothes" if place in (0, 1, 4) else "other"} for place in range(6)}


@pytest.fixture
def model(make_model):
    return make_model()


def found(documents):
    return [(each.id, each.page_content, pytest.approx(each.metadata["score"], abs=1e-5)) for each in documents]


def expected(model, text, k):
    return [(each.uid, each.text, each.score) for each in model.predict([text], k)[0]]


def test_documents_are_the_labels(model):
    retriever = MegalabelRetriever(model=model, k=3, details=DETAILS)
    documents = retriever.invoke("red shoe")
    assert found(documents) == expected(model, "red shoe", 3)
    assert documents[0].metadata == {"kind": "clothes", "uid": "lbl-0", "score": documents[0].metadata["score"]}
    assert found(asyncio.run(retriever.ainvoke("red shoe"))) == found(documents)
    assert found(retriever.invoke("red shoe", k=1)) == found(documents)[:1]
    assert found(retriever.invoke("red shoe", threshold=documents[1].metadata["score"])) == found(documents)[:2]
    assert MegalabelRetriever(model=model, documents={"lbl-0": "whole"}).invoke("red shoe")[0].page_content == "whole"


def test_filters_come_before_the_cut(model):
    retriever = MegalabelRetriever(model=model, k=2, details=DETAILS)
    every = [uid for uid, _, _ in expected(model, "green", 6)]
    other = [uid for uid in every if DETAILS[uid]["kind"] == "other"]
    assert [each.id for each in retriever.invoke("green", filter={"kind": "other"})] == other[:2]
    assert [each.id for each in retriever.invoke("green", filter={"kind": ["other"], "uid": other[2]})] == other[2:]
    assert [each.id for each in retriever.invoke("green", filter=lambda known: known["uid"] == "lbl-4")] == ["lbl-4"]
    assert retriever.invoke("green", filter={"missing": 1}) == []
    assert [each.id for each in retriever.invoke("green")] == every[:2]
    model.remove_labels([other[0]])
    assert [each.id for each in retriever.invoke("green", filter={"kind": "other"})] == other[1:]


def test_a_batch_asks_the_model_once_and_tells_each_question(model, monkeypatch):
    asked, told = [], []

    class Heard(BaseCallbackHandler):
        def on_retriever_start(self, serialized, query, **more):
            told.append(query)

    plain = model.predict
    monkeypatch.setattr(
        model, "predict", lambda texts, *more, **options: asked.append(texts) or plain(texts, *more, **options)
    )
    retriever = MegalabelRetriever(model=model, k=2)
    texts = ["red shoe", "sort", "green"]
    rows = retriever.batch(texts, config={"callbacks": [Heard()]})
    assert asked == [texts] and told == texts
    assert found(rows[1]) == expected(model, "sort", 2)
    assert [found(row) for row in asyncio.run(retriever.abatch(texts, k=1))] == [found(row)[:1] for row in rows]
    assert retriever.batch([]) == []
    assert isinstance(retriever.batch(texts, k=0, return_exceptions=True)[2], SettingError)


def test_in_a_chain_from_a_saved_model(model, tmp_path):
    model.save(tmp_path / "model")
    retriever = MegalabelRetriever(model=tmp_path / "model", k=2)
    chain = retriever | RunnableLambda(lambda documents: " / ".join(each.page_content for each in documents))
    assert chain.invoke("red shoe") == " / ".join(text for _, text, _ in expected(model, "red shoe", 2))
    with pytest.raises(SettingError, match="k is 0"):
        retriever.invoke("red", k=0)
