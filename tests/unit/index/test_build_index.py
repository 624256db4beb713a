"""Kinds by name."""

import pytest
import torch

from megalabel.errors import SettingError
from megalabel.index import ExactIndex, HnswIndex, IvfIndex, build_index


def test_each_kind_with_its_settings():
    vectors = torch.eye(40)
    assert isinstance(build_index(vectors), ExactIndex)
    graph = build_index(vectors, "hnsw", M=5, ef_search=9, seed=2)
    assert isinstance(graph, HnswIndex)
    assert graph.settings() == {"M": 5, "ef_construction": 100, "ef_search": 9, "seed": 2}
    lists = build_index(vectors, "ivf", nlist=3, nprobe=2)
    assert isinstance(lists, IvfIndex)
    assert lists.settings() == {"nlist": 3, "nprobe": 2, "pq": None, "rerank": 10, "seed": 0}


@pytest.mark.parametrize(
    ("kind", "settings", "words"),
    [("hnws", {}, "did you mean 'hnsw'"), ("ivf", {"nprob": 3}, "did you mean 'nprobe'"), ("exact", {"M": 3}, "leave")],
)
def test_wrong_names(kind, settings, words):
    with pytest.raises(SettingError, match=words):
        build_index(torch.eye(2), kind, **settings)
