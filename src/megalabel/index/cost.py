"""What an index costs, for the plan of a training."""

from __future__ import annotations

import math
from dataclasses import dataclass

from megalabel.index.beam import BEAM, BRANCHES, LEAF
from megalabel.index.hnsw import EF_CONSTRUCTION, EF_SEARCH, LINKS
from megalabel.index.ivf import list_count, probe_count

__all__ = ["SearchCost", "search_cost"]


@dataclass(frozen=True)
class SearchCost:
    """Products of two vectors, and bytes."""

    build: float  # products to build the index
    search: float  # products for a query
    label_bytes: float  # held for each label, beside its vector


def search_cost(kind: str, labels: int, dim: int, **settings: int) -> SearchCost:
    """Return what an index of a kind costs; settings as in :func:`megalabel.index.build_index`.

    >>> search_cost("ivf", 10_000, 64, nprobe=40)
    SearchCost(build=4000000, search=1400.0, label_bytes=264)
    """
    if kind == "ivf":
        lists = settings.get("nlist", list_count(labels))
        probed = settings.get("nprobe", probe_count(lists))
        return SearchCost(labels * lists, lists + labels * min(1.0, probed / lists), settings.get("pq", 4 * dim) + 8)
    if kind == "beam":
        leaf, branches = settings.get("leaf", LEAF), settings.get("branches", BRANCHES)
        depth = math.ceil(math.log(max(2, labels / leaf), branches))
        width = settings.get("beam", BEAM)
        return SearchCost(labels * depth * branches, min(labels, width * (leaf + depth * branches)), 4 * dim + 8)
    if kind == "hnsw":
        links = settings.get("M", LINKS)
        build, visited = settings.get("ef_construction", EF_CONSTRUCTION), settings.get("ef_search", EF_SEARCH)
        return SearchCost(labels * links * build, links * visited, 4 * dim + 8 * links + 16)
    return SearchCost(0, labels, 0)
