"""Balanced clusters of labels, from dense and sparse vectors."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from megalabel.errors import DataError, SettingError
from megalabel.graphs import partition, partition_tree


def blobs(count, each, dim=16, noise=0.2, seed=0):
    rng = np.random.default_rng(seed)
    centres = np.abs(rng.standard_normal((count, dim)))
    truth = np.repeat(np.arange(count), each)[rng.permutation(count * each)]
    return np.float32(centres[truth] + noise * rng.standard_normal((len(truth), dim))), truth


@settings(max_examples=40)
@given(st.integers(1, 60), st.data(), st.integers(0, 1000), st.booleans())
def test_sizes_are_near_equal_for_any_number(labels, data, seed, is_sparse):
    clusters = data.draw(st.integers(1, labels))
    vectors = np.random.default_rng(seed).standard_normal((labels, 5))
    clusters_of = partition(sparse.csr_matrix(vectors) if is_sparse else vectors, clusters=clusters, seed=seed)
    sizes = np.bincount(clusters_of, minlength=clusters)
    assert clusters_of.dtype == np.int64
    assert {*sizes.tolist()} <= {labels // clusters, -(-labels // clusters)}


def test_dense_and_sparse_vectors_give_the_same_groups():
    vectors, _ = blobs(8, 30)
    dense = partition(vectors, size=30, seed=1)
    assert np.array_equal(dense, partition(sparse.csr_matrix(vectors), size=30, seed=1))
    assert np.bincount(dense).tolist() == [30] * 8
    assert not np.array_equal(dense, partition(vectors, size=30, seed=2))


def test_groups_are_found_in_sparse_vectors():
    rng = np.random.default_rng(0)
    truth = rng.permutation(np.repeat(np.arange(4), 25))
    words = truth[:, None] * 50 + rng.integers(0, 50, (100, 12))  # every group has words of its own
    vectors = sparse.csr_matrix((np.ones(1200), words.ravel(), np.arange(0, 1201, 12)), shape=(100, 200))
    before = vectors.copy()
    clusters_of = partition(vectors, clusters=4, seed=0)
    assert len({*zip(clusters_of.tolist(), truth.tolist(), strict=True)}) <= 6  # four, had no cut split a group
    assert (vectors != before).nnz == 0


def test_empty_vectors_and_edges():
    assert np.bincount(partition(sparse.csr_matrix((30, 7)), size=7, seed=0)).tolist() == [6] * 5
    assert partition(np.empty((0, 3)), size=4, seed=0).tolist() == []
    assert partition(np.ones((3, 2)), clusters=1, seed=0).tolist() == [0, 0, 0]
    assert sorted(partition(sparse.eye(5, format="csr"), size=1, seed=0).tolist()) == [0, 1, 2, 3, 4]


def test_mistakes():
    vectors = np.ones((4, 2))
    with pytest.raises(SettingError, match="either"):
        partition(vectors)
    with pytest.raises(SettingError, match="either"):
        partition(vectors, clusters=2, size=2)
    with pytest.raises(SettingError, match="cannot form 5"):
        partition(vectors, clusters=5)
    with pytest.raises(SettingError, match="size"):
        partition(vectors, size=0)
    with pytest.raises(SettingError, match="seed"):
        partition(vectors, size=1, seed=-1)
    with pytest.raises(DataError, match="NaN"):
        partition(vectors * np.nan, size=1)
    with pytest.raises(DataError, match="NaN"):
        partition(sparse.csr_matrix(vectors * np.nan), size=1)
    with pytest.raises(DataError, match="matrix"):
        partition(np.ones(4), size=2)


def test_graphs_load_no_torch():
    code = "import sys, megalabel.graphs; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@given(st.integers(1, 300), st.sampled_from([2, 4, 16]))
def test_a_tree_of_even_depth_over_all_clusters(clusters, branches):
    levels = partition_tree(clusters, branches=branches)
    above = 1
    for parents in levels:
        assert np.all(np.diff(parents) >= 0)  # children of near parents are near
        children = np.bincount(parents, minlength=above)
        assert len(children) == above
        assert children.min() >= 1
        assert children.max() <= branches
        above = len(parents)
    assert above == clusters


def test_subtrees_are_balanced():
    counts = np.ones(100, dtype=np.int64)
    for parents in reversed(partition_tree(100)):
        counts = np.bincount(parents, counts).astype(np.int64)
        assert counts.max() - counts.min() <= max(1, counts.max() // 2)
    assert counts.tolist() == [100]


def test_invalid_trees():
    for branches in (0, 1, 3):
        with pytest.raises(SettingError, match="power of two"):
            partition_tree(4, branches=branches)
    with pytest.raises(SettingError, match="clusters"):
        partition_tree(0)
