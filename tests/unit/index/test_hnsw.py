"""Settings of HNSW."""

import pytest
import torch

from megalabel.errors import SettingError
from megalabel.index import ExactIndex, HnswIndex, recall


def test_more_effort_finds_more(make):
    vectors, queries = make(3_000, 32, 100, groups=1)
    index = HnswIndex.build(vectors, M=4, ef_construction=20)
    recalls = []
    for index.effort in (30, 100, 300):
        recalls.append(recall(index, ExactIndex(vectors), queries, 10))
    assert recalls[0] < recalls[1] < recalls[2]
    assert index.ef_search == 300 and index.most_effort == 3_000


def test_several_threads_build_a_graph_as_good(make):
    vectors, queries = make(2_000, 16, 50)
    assert recall(HnswIndex.build(vectors, threads=2), ExactIndex(vectors), queries, 10) > 0.95


@pytest.mark.parametrize("wrong", [{"M": 1}, {"ef_construction": 0}, {"ef_search": 0}, {"threads": 0}])
def test_wrong_settings(wrong):
    with pytest.raises(SettingError, match=next(iter(wrong))):
        HnswIndex.build(torch.eye(2), **wrong)


def test_half_precision():
    top = HnswIndex.build(torch.eye(100, dtype=torch.bfloat16)).search(torch.eye(100, dtype=torch.float16), 1)
    assert top.ids.flatten().tolist() == list(range(100))
