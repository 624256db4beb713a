"""The labels of a model as documents for Haystack."""

from __future__ import annotations

import asyncio
import json
import os
from typing import TYPE_CHECKING, Any

from megalabel.errors import MissingExtraError, SettingError
from megalabel.integrations.retriever import Retriever

os.environ.setdefault("HAYSTACK_TELEMETRY_ENABLED", "False")  # read when haystack is imported; True is up to the user
try:
    from haystack import Document, component, default_from_dict, default_to_dict
    from haystack.utils.filters import document_matches_filter
except ImportError as error:
    raise MissingExtraError("haystack-ai", extra="haystack", what="the retriever for Haystack") from error

if TYPE_CHECKING:
    from collections.abc import Mapping
    from os import PathLike

    from megalabel.integrations.retriever import Document as Plain
    from megalabel.model import Model

__all__ = ["MegalabelRetriever"]


@component
class MegalabelRetriever:
    """Retrieve documents, the labels of a model, in a Haystack pipeline.

    A document has the text as ``content``, the uid as ``id``, the score, and uid and details as ``meta``. A pipeline
    can be saved if the model is given by its folder. The telemetry of Haystack is off unless it was imported before
    this module, or HAYSTACK_TELEMETRY_ENABLED says otherwise.

    Args:
        model: a trained model, or the folder of one; its labels are the documents.
        top_k: number of documents for each question.
        threshold: drop documents with a lower score.
        documents: uid -> text to return, if the label texts are only titles or summaries.
        details: uid -> more meta.
        filters: a Haystack filter, such as ``{"field": "meta.language", "operator": "==", "value": "de"}``; other
            documents are left out before the cut.
        heads: which scores to use: ``all``, or one head by name.
    """

    def __init__(
        self,
        model: Model | str | PathLike[str],
        top_k: int = 5,
        threshold: float | None = None,
        documents: Mapping[str, str] | None = None,
        details: Mapping[str, Mapping[str, Any]] | None = None,
        filters: dict[str, Any] | None = None,
        heads: str = "all",
    ) -> None:
        self.model = model
        self.top_k = top_k
        self.threshold = threshold
        self.documents = documents
        self.details = details
        self.filters = filters
        self.heads = heads
        self._plain = Retriever(model, documents=documents, details=details, heads=heads)

    def warm_up(self) -> None:
        """Load the model."""
        self._plain.load()

    def to_dict(self) -> dict[str, Any]:
        """Return the arguments, to save a pipeline."""
        if not isinstance(self.model, str | os.PathLike):
            raise SettingError("a model in memory cannot be saved with a pipeline", remedy="give its folder as model")
        names = ("top_k", "threshold", "documents", "details", "filters", "heads")
        saved: dict[str, Any] = default_to_dict(
            self, model=os.fspath(self.model), **{name: getattr(self, name) for name in names}
        )
        return saved

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> MegalabelRetriever:
        """Return the component that :meth:`to_dict` describes."""
        made: MegalabelRetriever = default_from_dict(cls, data)
        return made

    @component.output_types(documents=list[Document])  # type: ignore[untyped-decorator]
    def run(
        self,
        query: str,
        filters: dict[str, Any] | None = None,
        top_k: int | None = None,
        threshold: float | None = None,
    ) -> dict[str, list[Document]]:
        """Return the documents for one question; filters, top_k and threshold replace those of the component."""
        return {"documents": self.run_batch([query], filters, top_k, threshold)[0]}

    @component.output_types(documents=list[Document])  # type: ignore[untyped-decorator]
    async def run_async(
        self,
        query: str,
        filters: dict[str, Any] | None = None,
        top_k: int | None = None,
        threshold: float | None = None,
    ) -> dict[str, list[Document]]:
        """Do the same as :meth:`run` in a thread."""
        found: dict[str, list[Document]] = await asyncio.to_thread(self.run, query, filters, top_k, threshold)
        return found

    def run_batch(
        self,
        queries: list[str],
        filters: dict[str, Any] | None = None,
        top_k: int | None = None,
        threshold: float | None = None,
    ) -> list[list[Document]]:
        """Return the documents for each question, which asks the model once."""
        filters = self.filters if filters is None else filters
        rows = self._plain.batch(
            queries,
            k=self.top_k if top_k is None else top_k,
            threshold=self.threshold if threshold is None else threshold,
            keep=(lambda found: document_matches_filter(filters, _document(found))) if filters else None,
            key=json.dumps(filters, sort_keys=True, default=str),
        )
        return [[_document(found) for found in row] for row in rows]


def _document(found: Plain) -> Document:
    return Document(id=found.id, content=found.text, meta={**found.details, "uid": found.id}, score=found.score)
