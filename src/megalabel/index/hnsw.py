"""Search along a graph of neighbours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
from torch import Tensor

from megalabel.errors import SettingError
from megalabel.index._approximate import Approximate, as_labels, check_settings
from megalabel.index._faiss import borrowed, faiss_threads
from megalabel.index._store import read_faiss
from megalabel.progress import progress

if TYPE_CHECKING:
    from os import PathLike

    from numpy.typing import NDArray

__all__ = ["HnswIndex"]

_BLOCK = 4096  # labels put into the graph at a time
_SCORED = 32  # labels scored for one that is kept, at most, as measured: most links lead back


class HnswIndex(Approximate):
    """Inner-product search in a hierarchical navigable small world (Malkov and Yashunin, TPAMI 2020; faiss).

    Every label is linked to near ones; a search walks from far links to close ones and
    keeps the ``ef_search`` best labels seen. Vectors need not be of unit length: near is what
    has a large product (Morozov and Babenko, NeurIPS 2018). Quick for single queries, slow to
    build; memory is about 4 (d + 2 M) bytes a label, the label vectors among them.

    Made by :meth:`build` or :meth:`load`; ``ef_search`` may be set at any time.

    >>> import torch
    >>> labels = torch.randn(2000, 16, generator=torch.Generator().manual_seed(0))
    >>> index = HnswIndex.build(labels, M=8)
    >>> index.search(3 * labels[:2], k=1).ids.tolist()
    [[0], [1]]
    """

    kind = "hnsw"

    def __init__(
        self, faiss_index: Any, vectors: Tensor, *, M: int, ef_construction: int, ef_search: int, seed: int
    ) -> None:
        super().__init__(faiss_index, vectors)
        self.M = M
        self.ef_construction = ef_construction
        self.ef_search = ef_search
        self.seed = seed

    @classmethod
    def build(
        cls,
        vectors: Tensor,
        *,
        M: int = 16,
        ef_construction: int = 100,
        ef_search: int = 128,
        seed: int = 0,
        threads: int = 1,
    ) -> Self:
        """Put all labels into the graph.

        Args:
            vectors: label vectors [L, d]; row l is label l.
            M: links of a label, twice as many on the lowest level.
            ef_construction: labels looked at to find the links of one.
            ef_search: labels looked at by a search; k where that is more.
            seed: decides the levels of labels.
            threads: that build. One gives the same graph every time; more are quicker, but
                which label is there first is then left to chance, and so are some links.
        """
        check_settings(seed, ef_construction=ef_construction, ef_search=ef_search, threads=threads)
        if M < 2:
            raise SettingError(f"M must be at least 2, not {M}")
        labels = as_labels(vectors)
        rows = labels.numpy()
        with faiss_threads(threads) as faiss:
            graph = faiss.IndexHNSWFlat(rows.shape[1], M, faiss.METRIC_INNER_PRODUCT)
            graph.hnsw.efConstruction = ef_construction
            graph.hnsw.rng = faiss.RandomGenerator(seed)
            with progress("building the index", total=len(rows), unit="labels") as step:
                for start in range(0, len(rows), _BLOCK):
                    graph.add(rows[start : start + _BLOCK])
                    step(min(_BLOCK, len(rows) - start))
        settings = {"M": M, "ef_construction": ef_construction, "ef_search": ef_search, "seed": seed}
        return cls(graph, borrowed(graph, graph.storage, *labels.shape), **settings)

    @property
    def effort(self) -> int:
        """``ef_search``."""
        return self.ef_search

    @effort.setter
    def effort(self, value: int) -> None:
        check_settings(ef_search=value)
        self.ef_search = value

    @property
    def most_effort(self) -> int:
        """All labels."""
        return len(self)

    def settings(self) -> dict[str, Any]:
        """Return M, ef_construction, ef_search and seed."""
        names = ("M", "ef_construction", "ef_search", "seed")
        return {name: getattr(self, name) for name in names}

    def _propose(self, queries: NDArray[np.float32], count: int) -> NDArray[np.int64]:
        with faiss_threads() as faiss:
            looked_at = faiss.SearchParametersHNSW(efSearch=max(self.ef_search, count))
            found: NDArray[np.int64] = self.faiss_index.search(queries, count, params=looked_at)[1]
        return found

    def _scored(self, count: int) -> int:
        return max(self.ef_search, count) * min(self.M, _SCORED)

    def _parts(self) -> tuple[Any, Tensor | None]:
        return self.faiss_index, None

    @classmethod
    def _restore(cls, folder: str | PathLike[str], card: dict[str, Any]) -> Self:
        graph = read_faiss(folder, "IO_FLAG_MMAP_IFC", "IndexHNSWFlat", card["labels"])
        return cls(graph, borrowed(graph, graph.storage, graph.ntotal, graph.d), **card["settings"])
