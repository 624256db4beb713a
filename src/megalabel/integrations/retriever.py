"""A model as the retriever of a question-answering system: the labels are the documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from megalabel.errors import SettingError

if TYPE_CHECKING:
    from megalabel.model import Model

__all__ = ["Document", "Retriever"]


@dataclass(frozen=True, slots=True)
class Document:
    """A document retrieved for a question."""

    id: str
    text: str
    score: float


class Retriever:
    """Retrieve the documents that answer a question, best first.

    A question that two documents answer together is a text with two labels. Train a model with
    the documents as labels (uid and text), then pass the retriever to your question-answering
    code, which calls ``invoke``.

    Args:
        model: a trained model; its labels are the documents.
        k: number of documents for each question.
        threshold: drop documents with a lower score, so that there may be fewer than k.
        documents: uid -> text to return, if the label texts are only titles or summaries.
        heads: which scores to use: ``all``, or one head by name.

    >>> from megalabel import load, train
    >>> data = load("synthetic:points=400,labels=30")
    >>> model = train("unidec-cpu", data, changes=["training.epochs=1", "batching.batch_size=64"])
    >>> documents = Retriever(model, k=3).invoke("some question")
    >>> len(documents), documents[0].id in data.labels.uids, documents[0].score >= documents[1].score
    (3, True, True)
    """

    def __init__(
        self,
        model: Model,
        k: int = 5,
        *,
        threshold: float | None = None,
        documents: Mapping[str, str] | None = None,
        heads: str = "all",
    ) -> None:
        self.model = model
        self.k = k
        self.threshold = threshold
        self.documents = documents
        self.heads = heads

    def invoke(self, text: str) -> list[Document]:
        """Return the documents for one question."""
        if not isinstance(text, str):
            raise SettingError(f"a question is a text, not {type(text).__name__}", remedy="batch takes several")
        return self.batch([text])[0]

    def batch(self, texts: Sequence[str]) -> list[list[Document]]:
        """Return the documents for each question; faster than one at a time."""
        if self.k < 1:
            raise SettingError(f"k is {self.k}", remedy="give at least 1")
        texts_of = self.documents or {}
        return [
            [
                Document(label.uid, texts_of.get(label.uid, label.text), label.score)
                for label in row
                if self.threshold is None or label.score >= self.threshold
            ]
            for row in self.model.predict(texts, self.k, heads=self.heads)
        ]
