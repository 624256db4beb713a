"""Beam search over a tree of labels: a full beam is exhaustive, a narrow one follows the best nodes."""

import numpy as np
import pytest
import torch

from megalabel.errors import SettingError
from megalabel.graphs import partition, partition_tree
from megalabel.index import BeamIndex, ExactIndex, choose_index, recall
from megalabel.index.cost import search_cost


def naive_clusters(index, queries, width):
    """Return the clusters [Q, width] that a beam ends in, sorting all children by hand."""
    beam = [[0] for _ in queries]
    for starts, centres in index._levels:
        for row, query in enumerate(queries.astype(np.float64)):
            children = [child for node in beam[row] for child in range(starts[node], starts[node + 1])]
            scores = {child: float(centres[child].astype(np.float64) @ query) for child in children}
            beam[row] = sorted(children, key=lambda child: (-np.float32(scores[child]), child))[:width]
    return beam


def test_a_full_beam_equals_exhaustive_scoring(make):
    vectors, queries = make(700, 16, 30)
    index = BeamIndex.build(vectors, leaf=10, branches=4, beam=10_000)
    assert index.beam == index.clusters == 70
    proposed = index._propose(queries.numpy(), 700)
    assert np.array_equal(np.sort(proposed, axis=1), np.tile(np.arange(700), (30, 1)))
    ranked, sizes = index._rank(queries.numpy(), proposed, 700)
    exact = ExactIndex(vectors).search(queries, 700)
    assert sizes.tolist() == [700] * 30
    np.testing.assert_array_equal(ranked.ids, exact.ids)
    np.testing.assert_array_equal(ranked.scores, exact.scores)


@pytest.mark.parametrize("width", [1, 3, 8])
def test_a_narrow_beam_proposes_the_labels_of_its_clusters(make, width):
    vectors, queries = make(900, 8, 12)
    index = BeamIndex.build(vectors, leaf=12, branches=4, beam=width)
    cluster = partition(vectors, size=12, seed=0)
    found = index._propose(queries.numpy(), 12 * width // 4)
    for row, clusters in enumerate(naive_clusters(index, queries.numpy(), width)):
        labels = np.flatnonzero(np.isin(cluster, clusters))
        best = labels[np.argsort(-(vectors[labels] @ queries[row]).numpy(), kind="stable")]
        assert set(found[row].tolist()) == set(best[: found.shape[1]].tolist())


def test_nodes_are_the_means_of_what_is_below(make):
    vectors, _ = make(640, 8, 1)
    index = BeamIndex.build(vectors, leaf=10, branches=4)
    tree = partition_tree(64, branches=4)
    assert [len(centres) for _, centres in index._levels] == [len(level) for level in tree] == [4, 16, 64]
    leaves = index._levels[-1][1]
    for node in range(16):
        mean = leaves[tree[-1] == node].mean(axis=0)
        np.testing.assert_allclose(index._levels[-2][1][node], mean / np.linalg.norm(mean), atol=1e-6)


def test_one_cluster_is_a_tree():
    vectors = torch.eye(5)
    assert BeamIndex.build(vectors, leaf=10)._propose(vectors.numpy(), 5).shape == (5, 5)


def test_more_effort_finds_more(make):
    vectors, queries = make(6_000, 24, 100, groups=300)
    index, exact = BeamIndex.build(vectors, leaf=16, beam=1), ExactIndex(vectors)
    found = []
    for index.effort in (1, 4, 16, 64):
        found.append(recall(index, exact, queries, 10))
    assert found == sorted(found)
    assert found[-1] > 0.95
    chosen = choose_index(vectors, queries, "beam", at_least=0.9, leaf=16)
    assert (chosen.recall >= 0.9, chosen.kind) == (True, "beam")
    assert "beam (beam " in str(chosen)


def test_cost_grows_with_the_logarithm_of_labels():
    costs = [search_cost("beam", 10**power, 64).search for power in (4, 5, 6, 7)]
    assert max(np.diff(costs)) <= 2 * 16 * 16  # one level more, at most two
    assert costs[-1] < 2 * costs[0]


def test_mistakes_are_one_line():
    for settings, words in (({"branches": 12}, "power of two"), ({"leaf": 0}, "leaf must be at least 1")):
        with pytest.raises(SettingError, match=words):
            BeamIndex.build(torch.eye(4), **settings)
