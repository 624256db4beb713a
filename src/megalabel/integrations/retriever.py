"""A model as the retriever of a question-answering system: the labels are the documents."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from megalabel.errors import SettingError

if TYPE_CHECKING:
    from megalabel.model import Model
    from megalabel.model.labels import LabelState

__all__ = ["Document", "Keep", "Retriever"]

Keep = Callable[["Document"], bool]  # whether a document may be retrieved; its score is not known yet, and 0


@dataclass(frozen=True, slots=True)
class Document:
    """A document retrieved for a question."""

    id: str
    text: str
    score: float
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def metadata(self) -> dict[str, Any]:
        """What other libraries keep beside the text: the details, uid and score."""
        return {**self.details, "uid": self.id, "score": self.score}


class Retriever:
    """Retrieve the documents that answer a question, best first.

    A question that two documents answer together is a text with two labels. Train a model with
    the documents as labels (uid and text), then pass the retriever to your question-answering
    code, which calls ``invoke``. Labels that are added to the model, or removed, are followed.

    Args:
        model: a trained model, or the folder of one, which is read at the first question; its labels are the documents.
        k: number of documents for each question.
        threshold: drop documents with a lower score, so that there may be fewer than k.
        documents: uid -> text to return, if the label texts are only titles or summaries.
        details: uid -> what else is known of a document, such as its language or address; for ``keep``.
        heads: which scores to use: ``all``, or one head by name.

    >>> from megalabel import load, train
    >>> data = load("synthetic:points=400,labels=30")
    >>> model = train("unidec-cpu", data, changes=["training.epochs=1", "batching.batch_size=64"])
    >>> documents = Retriever(model, k=3).invoke("some question")
    >>> len(documents), documents[0].id in data.labels.uids, documents[0].score >= documents[1].score
    (3, True, True)
    >>> few = Retriever(model).invoke("some question", keep=lambda document: document.id in ("lbl-1", "lbl-2"))
    >>> sorted(document.id for document in few)
    ['lbl-1', 'lbl-2']
    """

    def __init__(
        self,
        model: Model | str | PathLike[str],
        k: int = 5,
        *,
        threshold: float | None = None,
        documents: Mapping[str, str] | None = None,
        details: Mapping[str, Mapping[str, Any]] | None = None,
        heads: str = "all",
    ) -> None:
        self.model = model
        self.k = k
        self.threshold = threshold
        self.documents = documents
        self.details = details
        self.heads = heads
        self._shown: tuple[Any, LabelState, Model] | None = None  # what the last filter left

    def invoke(
        self, text: str, *, k: int | None = None, threshold: float | None = None, keep: Keep | None = None
    ) -> list[Document]:
        """Return the documents for one question; see :meth:`batch`."""
        if not isinstance(text, str):
            raise SettingError(f"a question is a text, not {type(text).__name__}", remedy="batch takes several")
        return self.batch([text], k=k, threshold=threshold, keep=keep)[0]

    def batch(
        self,
        texts: Sequence[str],
        *,
        k: int | None = None,
        threshold: float | None = None,
        keep: Keep | None = None,
        key: Any = None,
    ) -> list[list[Document]]:
        """Return the documents for each question; faster than one at a time.

        Args:
            texts: the questions.
            k: in place of the retriever's.
            threshold: in place of the retriever's.
            keep: is asked once for every document; the others are left out before the cut to k.
            key: two filters with the same key keep the same documents; by default the function itself.
        """
        k = self.k if k is None else k
        threshold = self.threshold if threshold is None else threshold
        if k < 1:
            raise SettingError(f"k is {k}", remedy="give at least 1")
        model = self.load() if keep is None else self._keeping(keep, keep if key is None else key)
        return [
            [
                self._document(label.uid, label.text, label.score)
                for label in row
                if threshold is None or label.score >= threshold
            ]
            for row in model.predict(texts, k, heads=self.heads)
        ]

    def _document(self, uid: str, text: str, score: float = 0.0) -> Document:
        return Document(uid, (self.documents or {}).get(uid, text), score, (self.details or {}).get(uid, {}))

    def load(self) -> Model:
        """Return the model, read from its folder the first time."""
        if isinstance(self.model, str | PathLike):
            from megalabel.model import Model

            self.model = Model.load(self.model)
        return self.model

    def _keeping(self, keep: Keep, key: Any) -> Model:
        """Return the model without the labels that a filter drops; the last one is remembered."""
        model = self.load()
        state, known = model.live.current(), self._shown
        if known is None or known[1] is not state or known[0] != key:
            texts = enumerate(zip(state.labels.uids, state.labels.texts, strict=True))
            gone = [label for label, (uid, text) in texts if not keep(self._document(uid, text))]
            known = self._shown = key, state, model.hiding(np.array(gone, dtype=np.int64))
        return known[2]
