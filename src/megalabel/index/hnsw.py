"""Search along a graph of neighbours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from torch import Tensor

from megalabel.errors import SettingError
from megalabel.index._approximate import Approximate, as_labels, check_settings
from megalabel.index._faiss import borrowed, faiss_threads, with_level
from megalabel.index._store import VECTORS, read_faiss, read_vectors
from megalabel.progress import progress

if TYPE_CHECKING:
    from os import PathLike

    from numpy.typing import NDArray

__all__ = ["HnswIndex"]

LINKS, EF_CONSTRUCTION, EF_SEARCH = 16, 100, 128  # defaults of HnswIndex.build
_BLOCK = 4096  # labels added to the graph at a time
_ROWS = 65_536  # labels measured at a time
_COMMON = 0.3  # the mean is subtracted if its length is at least this share of that of labels
_SCORED = 32  # measured upper bound of labels scored per label kept: most links lead back


class HnswIndex(Approximate):
    """Inner-product search in a hierarchical navigable small world (Malkov and Yashunin, TPAMI 2020; faiss).

    Every label is linked to near ones; a search follows far links first, then close ones, and
    keeps the ``ef_search`` best labels seen. Vectors need not be of unit length: near means a
    large product (Morozov and Babenko, NeurIPS 2018). If all labels share a large component,
    like those of a head with a bias, the graph is built on the vectors minus their mean, which
    does not change the ranking, and with equal lengths as in :class:`IvfIndex`: otherwise many
    labels could not be reached. Fast for single queries, slow to build; memory is about
    4 (d + 2 M) bytes per label, including the label vectors, and 4 d more in that case.

    Created by :meth:`build` or :meth:`load`; ``ef_search`` can be changed at any time.

    >>> import torch
    >>> labels = torch.randn(2000, 16, generator=torch.Generator().manual_seed(0))
    >>> index = HnswIndex.build(labels, M=8)
    >>> index.search(3 * labels[:2], k=1).ids.tolist()
    [[0], [1]]
    """

    kind = "hnsw"

    def __init__(
        self,
        faiss_index: Any,
        vectors: Tensor,
        *,
        M: int,
        ef_construction: int,
        ef_search: int,
        seed: int,
        beside: bool = False,
    ) -> None:
        super().__init__(faiss_index, vectors)
        self._beside = beside  # the label vectors, if the graph holds others
        self.M = M
        self.ef_construction = ef_construction
        self.ef_search = ef_search
        self.seed = seed
        self._last: tuple[int, Any, Any] = (0, None, None)

    @classmethod
    def build(
        cls,
        vectors: Tensor,
        *,
        M: int = LINKS,
        ef_construction: int = EF_CONSTRUCTION,
        ef_search: int = EF_SEARCH,
        seed: int = 0,
        threads: int = 1,
    ) -> Self:
        """Build the graph of all labels.

        Args:
            vectors: label vectors [L, d]; row l is label l.
            M: links per label, twice as many on the lowest level.
            ef_construction: beam width of the search for the links of a label.
            ef_search: beam width of a search; at least k is used.
            seed: seed of the levels of labels.
            threads: number of threads that build. One gives the same graph every time; more are faster, but the
                order of insertion and some links are then random.
        """
        check_settings(seed, ef_construction=ef_construction, ef_search=ef_search, threads=threads)
        if M < 2:
            raise SettingError(f"M must be at least 2, not {M}")
        labels = as_labels(vectors)
        linked = _without_mean(labels)
        rows = linked.numpy()
        with faiss_threads(count=threads) as faiss:
            graph = faiss.IndexHNSWFlat(rows.shape[1], M, faiss.METRIC_INNER_PRODUCT)
            graph.hnsw.efConstruction = ef_construction
            graph.hnsw.rng = faiss.RandomGenerator(seed)
            with progress("building the index", total=len(rows), unit="labels") as step:
                for start in range(0, len(rows), _BLOCK):
                    graph.add(rows[start : start + _BLOCK])
                    step(min(_BLOCK, len(rows) - start))
        settings = {"M": M, "ef_construction": ef_construction, "ef_search": ef_search, "seed": seed}
        held = borrowed(graph, graph.storage, *labels.shape) if linked is labels else labels
        return cls(graph, held, beside=linked is not labels, **settings)

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
        scores = np.empty((len(queries), count), dtype=np.float32)
        ids = np.empty((len(queries), count), dtype=np.int64)
        with faiss_threads(len(queries)) as faiss:
            at = faiss.swig_ptr
            how = self._how(faiss, self._beam_width(count))
            self.faiss_index.search_c(len(queries), at(queries), count, at(scores), at(ids), how)
        return ids

    def _how(self, faiss: Any, beam_width: int) -> Any:
        """Return the faiss parameters of a search; those of the last one are cached, since creating them takes time."""
        last = self._last
        if last[0] != beam_width or last[1] is not self._selector:
            how = faiss.SearchParametersHNSW(efSearch=beam_width, sel=self._selector)
            last = self._last = beam_width, self._selector, how
        return last[2]

    def _beam_width(self, count: int) -> int:
        """Return the beam width of a search: larger if labels were removed, since they still take places."""
        most = max(self.ef_search, count)
        return most + min(most, len(self.removed))

    def _scored(self, count: int) -> int:
        return self._beam_width(count) * min(self.M, _SCORED)

    def _parts(self) -> tuple[Any, Tensor | None]:
        return self.faiss_index, self.vectors if self._beside else None

    @classmethod
    def _restore(cls, folder: str | PathLike[str], card: dict[str, Any]) -> Self:
        graph = read_faiss(folder, "IO_FLAG_MMAP_IFC", "IndexHNSWFlat", card["labels"])
        shape = card["labels"], card["dim"]
        beside = VECTORS in card["files"]
        vectors = read_vectors(folder, shape) if beside else borrowed(graph, graph.storage, *shape)
        return cls(graph, vectors, beside=beside, **card["settings"])


def _without_mean(labels: Tensor) -> Tensor:
    """Return the vectors without their mean, which leaves the ranking unchanged; unchanged if the mean is small."""
    mean = labels.mean(dim=0)
    length = sum(float(part.square().sum()) for part in torch.split(labels, _ROWS)) / len(labels)
    if float(mean.square().sum()) <= _COMMON**2 * length:
        return labels
    return with_level(labels - mean)
