"""Approximate search by beam over a tree of labels."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from megalabel.errors import DataError, SettingError
from megalabel.graphs.partition import partition, partition_tree
from megalabel.index._approximate import Approximate, as_labels, check_settings
from megalabel.index._faiss import borrowed, faiss_threads, with_level
from megalabel.index._store import read_faiss, read_vectors
from megalabel.index._threads import row_threads
from megalabel.index.ivf import fill_lists, in_memory

if TYPE_CHECKING:
    from os import PathLike

    from numpy.typing import NDArray

__all__ = ["BEAM", "BRANCHES", "LEAF", "BeamIndex"]

LEAF, BRANCHES, BEAM = 64, 16, 16  # defaults
_DEPTH = 4  # the visited clusters hold at least this many times the number of candidates


class BeamIndex(Approximate):
    """Inner-product search by beam over a balanced tree of labels.

    Labels are cut into balanced clusters of at most ``leaf``, by recursive 2-means as in Parabel (Prabhu et al.,
    WWW 2018); a node is the mean of the clusters below it, scaled to length 1. A search starts at the root and keeps,
    level by level, the ``beam`` nodes of largest product with the query; labels of the clusters it ends in are
    scored. Depth grows with log L and all else is fixed, so a query costs
    beam (leaf + branches log(L / leaf)) products. With a beam as wide as there are clusters, search is exhaustive.

    As in :class:`~megalabel.index.IvfIndex`, an additional column gives vectors equal length for clustering.

    Created by :meth:`build` or :meth:`load`; ``beam`` can be changed at any time.

    >>> labels = torch.randn(2000, 16, generator=torch.Generator().manual_seed(0))
    >>> index = BeamIndex.build(labels, beam=4)
    >>> index.search(3 * labels[:2], k=1).ids.tolist()
    [[0], [1]]
    """

    kind = "beam"

    def __init__(
        self, faiss_index: Any, vectors: Tensor, *, clusters: int, leaf: int, branches: int, beam: int, seed: int
    ) -> None:
        super().__init__(faiss_index, vectors)
        self.clusters, self.leaf, self.branches, self.beam, self.seed = clusters, leaf, branches, beam, seed
        centres = borrowed(faiss_index, faiss_index.quantizer, clusters, faiss_index.d)
        self._levels = _tree(centres, branches)

    @classmethod
    def build(
        cls, vectors: Tensor, *, leaf: int = LEAF, branches: int = BRANCHES, beam: int = BEAM, seed: int = 0
    ) -> Self:
        """Cluster the labels and fill the leaves.

        Args:
            vectors: label vectors [L, d]; row l is label l.
            leaf: largest number of labels of a cluster.
            branches: largest number of children of a node above the clusters, a power of two.
            beam: nodes of each level that a search keeps.
            seed: seed of the clusters.
        """
        check_settings(seed, leaf=leaf, branches=branches, beam=beam)
        if branches < 2 or branches & (branches - 1):
            raise SettingError(f"branches must be a power of two, not {branches}", remedy="choose 2, 4, 8, 16 or 32")
        labels = as_labels(vectors)
        wide = with_level(labels)
        cluster = torch.from_numpy(partition(wide.numpy(), size=leaf, seed=seed))
        clusters = int(cluster.max()) + 1
        sums = wide.new_zeros((clusters, wide.shape[1])).index_add_(0, cluster, wide)
        lists = fill_lists(wide, normalize(sums, dim=1), cluster)
        return cls(lists, labels, clusters=clusters, leaf=leaf, branches=branches, beam=min(beam, clusters), seed=seed)

    @property
    def effort(self) -> int:
        """``beam``."""
        return self.beam

    @effort.setter
    def effort(self, value: int) -> None:
        check_settings(beam=value)
        self.beam = min(value, self.clusters)

    @property
    def most_effort(self) -> int:
        """All clusters."""
        return self.clusters

    def settings(self) -> dict[str, Any]:
        """Return clusters, leaf, branches, beam and seed."""
        return {name: getattr(self, name) for name in ("clusters", "leaf", "branches", "beam", "seed")}

    def _propose(self, queries: NDArray[np.float32], count: int) -> NDArray[np.int64]:
        from megalabel.index._kernels import widen

        rows, width = np.ascontiguousarray(queries), self._width_of_beam(count)
        lists, products = np.zeros((len(rows), 1), dtype=np.int64), np.zeros((len(rows), 1), dtype=np.float32)
        with row_threads(len(rows)) as spread:
            for starts, centres in self._levels:
                kept = min(width, len(centres))
                beam, lists = lists, np.empty((len(rows), kept), dtype=np.int64)
                products = np.empty((len(rows), kept), dtype=np.float32)
                spread(partial(widen, centres, starts, rows, beam, products, lists), len(rows))
        scores = np.empty((len(rows), count), dtype=np.float32)
        ids = np.empty((len(rows), count), dtype=np.int64)
        with faiss_threads(len(rows)) as faiss:
            at = faiss.swig_ptr
            how = faiss.SearchParametersIVF(nprobe=lists.shape[1], sel=self._selector)
            self.faiss_index.search_preassigned_c(
                len(rows), at(rows), count, at(lists), at(products), at(scores), at(ids), False, how
            )
        return ids

    def _width_of_beam(self, count: int) -> int:
        """Return the nodes to keep: more than ``beam`` if so many clusters would hold too few labels."""
        enough = math.ceil(_DEPTH * count * self.clusters / len(self))
        return min(max(self.beam, enough), self.clusters)

    def _scored(self, count: int) -> int:
        width = self._width_of_beam(count)
        nodes = sum(min(len(centres), width * self.branches) for _, centres in self._levels)
        return nodes + width * len(self) // self.clusters

    def _parts(self) -> tuple[Any, Tensor | None]:
        return in_memory(self.faiss_index), self.vectors

    @classmethod
    def _restore(cls, folder: str | PathLike[str], card: dict[str, Any]) -> Self:
        settings = card["settings"]
        lists = read_faiss(folder, "IO_FLAG_MMAP", "IndexIVFFlat", card["labels"])
        if lists.nlist != settings["clusters"]:
            raise DataError(f"there are {lists.nlist} clusters, the card says {settings['clusters']}", path=folder)
        return cls(lists, read_vectors(folder, (card["labels"], card["dim"])), **settings)


def _tree(centres: Tensor, branches: int) -> list[tuple[NDArray[np.int64], NDArray[np.float32]]]:
    """Return, level by level from the top, where the children of each node above start, and the nodes' centres."""
    parents = partition_tree(len(centres), branches=branches) or [np.zeros(len(centres), dtype=np.int64)]
    levels: list[tuple[NDArray[np.int64], NDArray[np.float32]]] = []
    for parent in reversed(parents):  # children of a node are neighbours
        starts = np.searchsorted(parent, np.arange(int(parent.max()) + 2))
        levels.append((starts, centres.numpy()))
        sums = centres.new_zeros((len(starts) - 1, centres.shape[1]))
        centres = normalize(sums.index_add_(0, torch.from_numpy(parent), centres), dim=1)
    return levels[::-1]
