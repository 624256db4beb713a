"""Settings of IVF."""

import pytest
import torch

from megalabel.errors import SettingError
from megalabel.index import ExactIndex, IvfIndex, recall
from megalabel.index._lists import assign, centres_of


def test_defaults_go_by_the_number_of_labels(make):
    index = IvfIndex.build(make(2_500, 16, 1)[0])
    assert (index.nlist, index.nprobe, index.pq) == (200, 12, None)


def test_more_lists_than_labels(make):
    vectors, queries = make(50, 8, 5)
    index = IvfIndex.build(vectors, nlist=1_000, nprobe=5_000, pq=4)
    assert (index.nlist, index.nprobe, index.pq) == (50, 50, None)  # 50 labels teach no codes
    assert recall(index, ExactIndex(vectors), queries, 3) == 1.0


def test_all_lists_are_exact_search(make):
    vectors, queries = make(2_000, 16, 50, lengths=0.5)
    index = IvfIndex.build(vectors, nprobe=10**6)
    assert index.nprobe == index.most_effort == index.nlist
    assert recall(index, ExactIndex(vectors), queries, 10) == 1.0


@pytest.mark.parametrize("pq", [1, 5, 24, 500])
def test_codes_of_any_size(make, pq):
    vectors, queries = make(1_100, 24, 40, lengths=0.2)
    index = IvfIndex.build(vectors, pq=pq, rerank=20)
    assert index.pq == min(pq, 24)
    assert recall(index, ExactIndex(vectors), queries, 5) > 0.6


def test_reranking_deeper_finds_more(make):
    vectors, queries = make(6_000, 16, 100, groups=1)
    index = IvfIndex.build(vectors, pq=2, nprobe=100)
    recalls = []
    for index.rerank in (1, 30):
        recalls.append(recall(index, ExactIndex(vectors), queries, 10))
    assert recalls[0] + 0.1 < recalls[1]


@pytest.mark.parametrize("wrong", [{"nlist": 0}, {"nprobe": 0}, {"pq": 0}, {"rerank": 0}])
def test_wrong_settings(wrong):
    with pytest.raises(SettingError, match=next(iter(wrong))):
        IvfIndex.build(torch.eye(2), **wrong)


def test_lists_have_similar_sizes(make):
    vectors, _ = make(6_000, 16, 1, groups=7)
    counts = torch.bincount(assign(vectors, centres_of(vectors, 40, seed=0)), minlength=40)
    assert counts.max() < 4 * 6_000 / 40
