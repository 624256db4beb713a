"""Approximate search in the clusters of labels nearest to the query."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from torch import Tensor

from megalabel.errors import DataError
from megalabel.index._approximate import Approximate, as_labels, check_settings
from megalabel.index._faiss import borrowed, faiss_threads, with_level
from megalabel.index._lists import assign, centres_of
from megalabel.index._store import read_faiss, read_vectors
from megalabel.progress import progress

if TYPE_CHECKING:
    from os import PathLike

    from numpy.typing import NDArray

__all__ = ["IvfIndex", "fill_lists", "in_memory", "list_count", "probe_count"]

_BLOCK = 65_536  # labels added to their lists at a time
_CODES = 256  # values of one byte of a product-quantised vector
_PQ_LABELS = 4 * _CODES  # fewer labels are not compressed
_PER_CODE = 64  # labels used to train a code
_PQ_ROUNDS = 10  # of k-means over codes
_DEPTH = 4  # the visited lists hold at least this many times the number of candidates


class IvfIndex(Approximate):
    """Inner-product search in inverted lists (Jegou et al., TPAMI 2011; faiss).

    Labels are clustered into ``nlist`` lists of similar size; a search visits the ``nprobe``
    lists whose centres have the largest product with the query. Fast to build. With ``pq``
    the lists hold ``pq`` bytes per label in place of its vector, and the ``rerank`` k best by
    these codes are scored with the true vectors, which can then stay on disk.

    Vectors need not be of unit length: an additional column gives them equal length for
    clustering, and does not change products (Bachrach et al., RecSys 2014).

    Created by :meth:`build` or :meth:`load`; ``nprobe`` and ``rerank`` can be changed at any time.

    >>> labels = torch.randn(2000, 16, generator=torch.Generator().manual_seed(0))
    >>> index = IvfIndex.build(labels, pq=4)
    >>> index.search(3 * labels[:2], k=1).ids.tolist()
    [[0], [1]]
    """

    kind = "ivf"

    def __init__(
        self, faiss_index: Any, vectors: Tensor, *, nlist: int, nprobe: int, pq: int | None, rerank: int, seed: int
    ) -> None:
        super().__init__(faiss_index, vectors)
        self.nlist = nlist
        self.nprobe = nprobe
        self.pq = pq
        self.rerank = rerank
        self.seed = seed
        self._centres = borrowed(faiss_index, faiss_index.quantizer, nlist, faiss_index.d)

    @classmethod
    def build(
        cls,
        vectors: Tensor,
        *,
        nlist: int | None = None,
        nprobe: int | None = None,
        pq: int | None = None,
        rerank: int = 10,
        seed: int = 0,
    ) -> Self:
        """Cluster the labels and fill the lists.

        Args:
            vectors: label vectors [L, d]; row l is label l.
            nlist: number of lists, at most one per label; 4 sqrt(L) by default.
            nprobe: lists visited per search; a sixteenth of all, at least 8, by default.
            pq: bytes per label in the lists, or None for the vectors themselves. Fewer than
                1,024 labels always keep their vectors.
            rerank: with ``pq``, labels scored with their true vectors, as a multiple of k.
            seed: seed of clusters and codes.
        """
        check_settings(seed, nlist=nlist, nprobe=nprobe, pq=pq, rerank=rerank)
        labels = as_labels(vectors)
        pq = None if pq is None or len(labels) < _PQ_LABELS else min(pq, labels.shape[1])
        nlist = min(len(labels), list_count(len(labels)) if nlist is None else nlist)
        wide = with_level(labels, multiple=pq or 1)
        centres = centres_of(wide, nlist, seed=seed)
        lists = fill_lists(wide, centres, pq=pq, seed=seed)
        probed = probe_count(nlist) if nprobe is None else nprobe
        return cls(lists, labels, nlist=nlist, nprobe=min(probed, nlist), pq=pq, rerank=rerank, seed=seed)

    @property
    def effort(self) -> int:
        """``nprobe``."""
        return self.nprobe

    @effort.setter
    def effort(self, value: int) -> None:
        check_settings(nprobe=value)
        self.nprobe = min(value, self.nlist)

    @property
    def most_effort(self) -> int:
        """All lists."""
        return self.nlist

    def settings(self) -> dict[str, Any]:
        """Return nlist, nprobe, pq, rerank and seed."""
        names = ("nlist", "nprobe", "pq", "rerank", "seed")
        return {name: getattr(self, name) for name in names}

    def _candidates(self, k: int) -> int:
        return k if self.pq is None else k * self.rerank

    def _propose(self, queries: NDArray[np.float32], count: int) -> NDArray[np.int64]:
        probed = self._probed(count)
        near, places = torch.mm(torch.from_numpy(queries), self._centres.T).topk(probed, dim=1)
        products, lists = near.numpy(), places.numpy()
        scores = np.empty((len(queries), count), dtype=np.float32)
        ids = np.empty((len(queries), count), dtype=np.int64)
        with faiss_threads(len(queries)) as faiss:
            at = faiss.swig_ptr
            how = faiss.SearchParametersIVF(nprobe=probed, sel=self._selector)
            self.faiss_index.search_preassigned_c(
                len(queries), at(queries), count, at(lists), at(products), at(scores), at(ids), False, how
            )
        return ids

    def _probed(self, count: int) -> int:
        """Return the number of lists to visit: more than ``nprobe`` if those would hold too few labels."""
        enough = math.ceil(_DEPTH * count * self.nlist / len(self))
        return min(max(self.nprobe, enough), self.nlist)

    def _scored(self, count: int) -> int:
        return self.nlist + self._probed(count) * len(self) // self.nlist

    def _parts(self) -> tuple[Any, Tensor | None]:
        return in_memory(self.faiss_index), self.vectors

    @classmethod
    def _restore(cls, folder: str | PathLike[str], card: dict[str, Any]) -> Self:
        settings = card["settings"]
        name = "IndexIVFFlat" if settings["pq"] is None else "IndexIVFPQ"
        lists = read_faiss(folder, "IO_FLAG_MMAP", name, card["labels"])
        if lists.nlist != settings["nlist"]:
            raise DataError(f"there are {lists.nlist} lists, the card says {settings['nlist']}", path=folder)
        return cls(lists, read_vectors(folder, (card["labels"], card["dim"])), **settings)


def list_count(labels: int) -> int:
    """Return the default number of lists."""
    return round(4 * math.sqrt(labels))


def probe_count(nlist: int) -> int:
    """Return the default number of lists that a search looks at."""
    return max(8, nlist // 16)


def fill_lists(
    wide: Tensor, centres: Tensor, list_of: Tensor | None = None, *, pq: int | None = None, seed: int = 0
) -> Any:
    """Return the faiss index with every label in its list ``list_of`` [L], by default that of the nearest centre."""
    with faiss_threads() as faiss:
        lists = _empty(centres, pq)
        if pq is not None:
            teaching = lists.pq.cp
            teaching.seed, teaching.niter, teaching.min_points_per_centroid = seed, _PQ_ROUNDS, 1
            sample = np.random.default_rng(seed).permutation(len(wide))[: _CODES * _PER_CODE]
            lists.train(wide[torch.from_numpy(np.sort(sample))].numpy())
        with progress("filling the lists", total=len(wide), unit="labels") as step:
            for start in range(0, len(wide), _BLOCK):
                rows = wide[start : start + _BLOCK]
                chosen = assign(rows, centres) if list_of is None else list_of[start : start + _BLOCK]
                vectors, places = rows.numpy(), chosen.numpy()
                lists.add_core(len(rows), faiss.swig_ptr(vectors), None, faiss.swig_ptr(places))
                step(len(rows))
    return lists


def _empty(centres: Tensor, pq: int | None) -> Any:
    """Return a faiss index with these centres and nothing in its lists."""
    import faiss

    nlist, width = centres.shape
    quantizer = faiss.IndexFlatIP(width)
    quantizer.add(centres.numpy())
    if pq is None:
        return faiss.IndexIVFFlat(quantizer, width, nlist, faiss.METRIC_INNER_PRODUCT)
    return faiss.IndexIVFPQ(quantizer, width, nlist, pq, 8, faiss.METRIC_INNER_PRODUCT)


def in_memory(lists: Any) -> Any:
    """Return the index itself, or a copy in memory if it is mapped: faiss saves a mapped one as a file name only."""
    import faiss

    mapped: Any = faiss.downcast_InvertedLists(lists.invlists)
    if not isinstance(mapped, faiss.OnDiskInvertedLists):
        return lists
    pq = lists.pq.M if isinstance(lists, faiss.IndexIVFPQ) else None
    copied = _empty(borrowed(lists, lists.quantizer, lists.nlist, lists.d), pq)
    if pq is not None:
        copied.pq, copied.by_residual, copied.is_trained = lists.pq, lists.by_residual, True
    for number in range(lists.nlist):
        size = mapped.list_size(number)
        if size:
            copied.invlists.add_entries(number, size, mapped.get_ids(number), mapped.get_codes(number))
    copied.ntotal = lists.ntotal
    return copied
