"""A retriever returns the predictions of the model, with the texts of the documents."""

import pytest

from megalabel.errors import SettingError
from megalabel.integrations.retriever import Document, Retriever


@pytest.fixture
def model(make_model):
    return make_model()


def test_same_as_predict(model, texts):
    actual = Retriever(model, k=4).batch(texts)
    expected = [[Document(p.uid, p.text, p.score) for p in row] for row in model.predict(texts, 4)]
    assert actual == expected
    assert Retriever(model, k=4).invoke(texts[2]) == [
        Document(p.uid, p.text, p.score) for p in model.predict(texts[2:3], 4)[0]
    ]


def test_texts_of_documents(model):
    first = Retriever(model, k=1).invoke("red shoe")[0]
    assert (first.id, first.text) == ("lbl-0", "red shoe")
    whole = Retriever(model, documents={"lbl-0": "all about red shoes"}).invoke("red shoe")
    assert whole[0].text == "all about red shoes" and len({part.text for part in whole}) == 5


def test_threshold(model):
    every = Retriever(model, k=99).invoke("red shoe")
    assert len(every) == 6
    assert Retriever(model, k=99, threshold=every[2].score).invoke("red shoe") == every[:3]
    assert Retriever(model, threshold=2).invoke("red shoe") == []


def test_wrong_use(model):
    with pytest.raises(SettingError, match="batch takes several"):
        Retriever(model).invoke(["red"])
    with pytest.raises(SettingError, match="k is 0"):
        Retriever(model, k=0).invoke("red")
    with pytest.raises(SettingError, match="not one text"):
        Retriever(model).batch("red")
    assert Retriever(model).batch([]) == []
