"""The labels of a model as nodes for LlamaIndex."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from megalabel.errors import MissingExtraError
from megalabel.integrations.retriever import Document, Retriever

try:
    from llama_index.core.base.base_retriever import BaseRetriever
    from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
    from llama_index.core.vector_stores.utils import build_metadata_filter_fn
except ImportError as error:
    raise MissingExtraError("llama-index-core", extra="llamaindex", what="the retriever for LlamaIndex") from error

if TYPE_CHECKING:
    from collections.abc import Mapping
    from os import PathLike

    from megalabel.model import Model

__all__ = ["MegalabelRetriever"]


class MegalabelRetriever(BaseRetriever):  # type: ignore[misc]
    """Retrieve nodes, the labels of a model, in a LlamaIndex query engine or agent.

    A node has the document as text, the uid as ``node_id``, and uid, score and details as ``metadata``.

    Args:
        model: a trained model, or the folder of one; its labels are the documents.
        similarity_top_k: number of nodes for each question.
        threshold: drop nodes with a lower score.
        documents: uid -> text to return, if the label texts are only titles or summaries.
        details: uid -> more metadata.
        filters: MetadataFilters on uid and details; other nodes are left out before the cut.
        heads: which scores to use: ``all``, or one head by name.
        options: those of BaseRetriever.
    """

    def __init__(
        self,
        model: Model | str | PathLike[str],
        similarity_top_k: int = 5,
        *,
        threshold: float | None = None,
        documents: Mapping[str, str] | None = None,
        details: Mapping[str, Mapping[str, Any]] | None = None,
        filters: Any = None,
        heads: str = "all",
        **options: Any,
    ) -> None:
        self.similarity_top_k = similarity_top_k
        self.threshold = threshold
        self.filters = filters
        self._plain = Retriever(model, documents=documents, details=details, heads=heads)
        super().__init__(**options)

    def retrieve_batch(self, texts: list[str]) -> list[list[NodeWithScore]]:
        """Return the nodes for each question, which asks the model once; callbacks are not called."""
        rows = self._plain.batch(
            texts,
            k=self.similarity_top_k,
            threshold=self.threshold,
            keep=None if self.filters is None else self._keep,
            key=None if self.filters is None else self.filters.model_dump_json(),
        )
        return [[_node(document) for document in row] for row in rows]

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return self.retrieve_batch([query_bundle.query_str])[0]

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return await asyncio.to_thread(self._retrieve, query_bundle)

    def _keep(self, document: Document) -> bool:
        return bool(build_metadata_filter_fn(lambda uid: document.metadata, self.filters)(document.id))


def _node(document: Document) -> NodeWithScore:
    """Return a node; a language model is shown the details, but not uid and score."""
    hidden = ["uid", "score"]
    node = TextNode(
        id_=document.id,
        text=document.text,
        metadata=document.metadata,
        excluded_llm_metadata_keys=hidden,
        excluded_embed_metadata_keys=hidden,
    )
    return NodeWithScore(node=node, score=document.score)
