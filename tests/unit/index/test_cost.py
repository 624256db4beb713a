"""Costs assume the settings that an index is built with."""

import pytest
import torch

from megalabel.index import build_index
from megalabel.index.cost import search_cost


@pytest.mark.parametrize("kind", ["exact", "hnsw", "ivf"])
def test_defaults_are_those_of_a_built_index(kind):
    vectors = torch.randn(2_000, 16, generator=torch.Generator().manual_seed(0))
    index = build_index(vectors, kind)
    names = {"exact": (), "hnsw": ("M", "ef_construction", "ef_search"), "ivf": ("nlist", "nprobe")}[kind]
    settings = {name: getattr(index, name) for name in names}
    assert search_cost(kind, 2_000, 16) == search_cost(kind, 2_000, 16, **settings)


def test_approximate_search_computes_less_and_codes_hold_less():
    exact, lists = (search_cost(kind, 100_000, 64) for kind in ("exact", "ivf"))
    codes = search_cost("ivf", 100_000, 64, pq=8)
    assert lists.search < exact.search == 100_000
    assert (exact.label_bytes, lists.label_bytes, codes.label_bytes) == (0, 264, 16)
