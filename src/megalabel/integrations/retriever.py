"""A model as the retriever of a question-answering system: labels are documents."""

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
    """A document found for a question."""

    id: str
    text: str
    score: float


class Retriever:
    """Find the documents a question needs, several of them, best first.

    A question that two documents answer together is a text with two labels. Train a model
    with the documents as labels (uid and text), then hand this to whatever writes the
    answer; it asks for nothing but ``invoke``.

    Args:
        model: a trained model; its labels are the documents.
        k: documents for a question, at most.
        least: score below which a document is left out, so that there may be fewer than k.
        documents: uid -> what is handed on, where labels carry a title or a summary only.
        heads: which scores count: all, or one head by name.

    >>> from megalabel import load, train
    >>> data = load("synthetic:points=400,labels=30")
    >>> model = train("unidec-cpu", data, changes=["training.epochs=1", "batching.batch_size=64"])
    >>> found = Retriever(model, k=3).invoke("some question")
    >>> len(found), found[0].id in data.labels.uids, found[0].score >= found[1].score
    (3, True, True)
    """

    def __init__(
        self,
        model: Model,
        k: int = 5,
        *,
        least: float | None = None,
        documents: Mapping[str, str] | None = None,
        heads: str = "all",
    ) -> None:
        self.model = model
        self.k = k
        self.least = least
        self.documents = documents
        self.heads = heads

    def invoke(self, text: str) -> list[Document]:
        """Return the documents for one question."""
        if not isinstance(text, str):
            raise SettingError(f"a question is a text, not {type(text).__name__}", remedy="batch takes several")
        return self.batch([text])[0]

    def batch(self, texts: Sequence[str]) -> list[list[Document]]:
        """Return the documents for each of several questions; quicker than one at a time."""
        if self.k < 1:
            raise SettingError(f"k is {self.k}", remedy="give at least 1")
        told = self.documents or {}
        return [
            [
                Document(found.uid, told.get(found.uid, found.text), found.score)
                for found in row
                if self.least is None or found.score >= self.least
            ]
            for row in self.model.predict(texts, self.k, heads=self.heads)
        ]
