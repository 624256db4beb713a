"""The retriever for LlamaIndex; tests/packaging/test_stacks.py runs this file where llama-index-core is installed."""

import asyncio

import pytest

pytest.importorskip("llama_index.core", reason="llama-index-core is not installed here")

from llama_index.core.llms import MockLLM
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import MetadataMode
from llama_index.core.vector_stores import MetadataFilter, MetadataFilters

from megalabel.errors import SettingError
from megalabel.integrations.llama_index import MegalabelRetriever

DETAILS = {f"lbl-{place}": {"kind": "clothes" if place in (0, 1, 4) else "other"} for place in range(6)}


@pytest.fixture
def model(make_model):
    return make_model()


def found(nodes):
    return [(each.node.node_id, each.node.get_content(), pytest.approx(each.score, abs=1e-5)) for each in nodes]


def expected(model, text, k):
    return [(each.uid, each.text, pytest.approx(each.score, abs=1e-5)) for each in model.predict([text], k)[0]]


def test_nodes_are_the_labels(model):
    retriever = MegalabelRetriever(model, 3, details=DETAILS)
    nodes = retriever.retrieve("red shoe")
    assert found(nodes) == expected(model, "red shoe", 3)
    assert nodes[0].metadata == {"kind": "clothes", "uid": "lbl-0", "score": nodes[0].score}
    assert nodes[0].node.get_content(MetadataMode.LLM) == "kind: clothes\n\nred shoe"
    assert found(asyncio.run(retriever.aretrieve("red shoe"))) == found(nodes)
    assert [found(row) for row in retriever.retrieve_batch(["red shoe", "sort"])] == [
        found(nodes),
        expected(model, "sort", 3),
    ]
    assert found(MegalabelRetriever(model, 3, threshold=nodes[1].score).retrieve("red shoe")) == found(nodes)[:2]
    whole = MegalabelRetriever(model, documents={"lbl-0": "whole"}).retrieve("red shoe")
    assert whole[0].node.get_content() == "whole"


def test_filters_come_before_the_cut(model):
    other = [uid for uid, _, _ in expected(model, "green", 6) if DETAILS[uid]["kind"] == "other"]
    filters = MetadataFilters(filters=[MetadataFilter(key="kind", value="other")])
    retriever = MegalabelRetriever(model, 2, details=DETAILS, filters=filters)
    assert [each.node.node_id for each in retriever.retrieve("green")] == other[:2]
    retriever.filters = MetadataFilters(filters=[MetadataFilter(key="uid", value=other[2])])
    assert [each.node.node_id for each in retriever.retrieve("green")] == other[2:]


def test_in_a_query_engine_from_a_saved_model(model, tmp_path):
    model.save(tmp_path / "model")
    retriever = MegalabelRetriever(tmp_path / "model", 2)
    engine = RetrieverQueryEngine.from_args(retriever, llm=MockLLM())
    answer = engine.query("red shoe")
    assert found(answer.source_nodes) == expected(model, "red shoe", 2)
    assert "red shoe" in str(answer)
    with pytest.raises(SettingError, match="k is 0"):
        MegalabelRetriever(model, 0).retrieve("red")
