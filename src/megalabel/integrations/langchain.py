"""The labels of a model as documents for LangChain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from megalabel.errors import MissingExtraError
from megalabel.integrations import retriever as plain

try:
    from langchain_core.documents import Document
    from langchain_core.retrievers import BaseRetriever
    from langchain_core.runnables.config import get_config_list, run_in_executor
    from pydantic import ConfigDict, PrivateAttr
except ImportError as error:
    raise MissingExtraError("langchain-core", extra="langchain", what="the retriever for LangChain") from error

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["MegalabelRetriever"]


class MegalabelRetriever(BaseRetriever):  # type: ignore[misc]
    """Retrieve documents, the labels of a model, in a LangChain chain or agent.

    A document has the text as ``page_content``, the uid as ``id``, and uid, score and details as ``metadata``.
    ``invoke`` and ``batch`` take ``k``, ``threshold`` and ``filter`` as well: a dictionary of metadata that a document
    must have (a list of values allows any of them), or a function of the metadata. ``batch`` asks the model once.

    Args:
        model: a trained model, or the folder of one; its labels are the documents.
        k: number of documents for each question.
        threshold: drop documents with a lower score.
        documents: uid -> text to return, if the label texts are only titles or summaries.
        details: uid -> more metadata.
        heads: which scores to use: ``all``, or one head by name.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, protected_namespaces=())

    model: Any
    k: int = 5
    threshold: float | None = None
    documents: dict[str, str] | None = None
    details: dict[str, dict[str, Any]] | None = None
    heads: str = "all"
    _plain: plain.Retriever = PrivateAttr()

    def model_post_init(self, context: Any) -> None:
        """Prepare the retriever that does the work."""
        self._plain = plain.Retriever(self.model, documents=self.documents, details=self.details, heads=self.heads)

    def _get_relevant_documents(
        self,
        query: str,
        *,
        run_manager: Any = None,
        k: int | None = None,
        threshold: float | None = None,
        filter: Any = None,
        found: list[Document] | None = None,
    ) -> list[Document]:
        return self._find([query], k, threshold, filter)[0] if found is None else found

    async def _aget_relevant_documents(self, query: str, *, run_manager: Any = None, **options: Any) -> list[Document]:
        found: list[Document] = await run_in_executor(None, lambda: self._get_relevant_documents(query, **options))
        return found

    def batch(
        self, inputs: list[str], config: Any = None, *, return_exceptions: bool = False, **options: Any
    ) -> list[Any]:
        """Return the documents for each question; callbacks see one retrieval for each."""
        if not inputs:
            return []
        configs = get_config_list(config, len(inputs))
        try:
            rows = self._find(inputs, *(options.get(name) for name in ("k", "threshold", "filter")))
        except Exception as error:
            if return_exceptions:
                return [error] * len(inputs)
            raise
        return [self.invoke(text, own, found=row) for text, own, row in zip(inputs, configs, rows, strict=True)]

    async def abatch(
        self, inputs: list[str], config: Any = None, *, return_exceptions: bool = False, **options: Any
    ) -> list[Any]:
        """Do the same as :meth:`batch` in a thread."""
        work = {"config": config, "return_exceptions": return_exceptions, **options}
        rows: list[Any] = await run_in_executor(None, lambda: self.batch(inputs, **work))
        return rows

    def _find(self, texts: list[str], k: int | None, threshold: float | None, wanted: Any) -> list[list[Document]]:
        rows = self._plain.batch(
            texts,
            k=self.k if k is None else k,
            threshold=self.threshold if threshold is None else threshold,
            keep=None if wanted is None else _keeping(wanted),
            key=wanted,
        )
        return [[Document(page_content=one.text, id=one.id, metadata=one.metadata) for one in row] for row in rows]


def _keeping(wanted: Any) -> Callable[[plain.Document], bool]:
    """Return whether a document fits a filter."""
    if callable(wanted):
        return lambda document: bool(wanted(document.metadata))

    def fits(document: plain.Document) -> bool:
        known = document.metadata
        return all(
            name in known and (known[name] in value if isinstance(value, list | tuple | set) else known[name] == value)
            for name, value in wanted.items()
        )

    return fits
