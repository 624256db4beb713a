"""Balanced clusters: sizes, quality and repeatability."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from megalabel.batching import balanced_clusters
from megalabel.errors import DataError, SettingError
from megalabel.graphs import _two_means


def blobs(count, each, dim=16, noise=0.3, seed=0):
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((count, dim))
    truth = np.repeat(np.arange(count), each)[rng.permutation(count * each)]
    return torch.from_numpy(centres[truth] + noise * rng.standard_normal((len(truth), dim))).float(), truth


def similarity(vectors, assignment):
    """Mean similarity of rows to the centre of their cluster."""
    unit = torch.nn.functional.normalize(vectors)
    sums = torch.zeros(int(assignment.max()) + 1, vectors.shape[1]).index_add_(0, torch.from_numpy(assignment), unit)
    return float(sums.norm(dim=1).sum() / len(vectors))


@settings(max_examples=40)
@given(st.integers(1, 90), st.integers(1, 100), st.integers(0, 1000))
def test_sizes_are_near_equal_for_any_number(count, size, seed):
    vectors = torch.from_numpy(np.random.default_rng(seed).standard_normal((count, 4))).float()
    actual = balanced_clusters(vectors, size, seed=seed)
    number = -(-count // size)
    counts = np.bincount(actual, minlength=number)
    assert actual.dtype == np.int64
    assert len(counts) == number
    assert {*counts.tolist()} <= {count // number, -(-count // number)}
    assert counts.max() <= size


@pytest.mark.parametrize("count", [2, 4, 8])
def test_separate_groups_are_recovered(count):
    vectors, truth = blobs(count, 40, noise=0.05)
    actual = balanced_clusters(vectors, 40, seed=1)
    pairs = len({*zip(actual.tolist(), truth.tolist(), strict=True)})
    assert pairs <= count + 2  # two-way cuts may split a group or two, never mix them all


def test_clusters_are_much_tighter_than_chance():
    vectors, _ = blobs(60, 25, noise=0.6)
    actual = balanced_clusters(vectors, 30, seed=0)
    assert similarity(vectors, actual) > 2 * similarity(vectors, np.random.default_rng(0).permutation(actual))


def test_neighbouring_clusters_are_similar():
    vectors, _ = blobs(64, 16, noise=0.2)
    actual = balanced_clusters(vectors, 16, seed=0)
    apart = np.random.default_rng(0).permutation(64)
    assert similarity(vectors, actual // 2) > similarity(vectors, apart[actual] // 2)


def test_large_clusters_find_their_centres_on_a_sample(monkeypatch):
    vectors, _ = blobs(60, 25, noise=0.6)
    full = similarity(vectors, balanced_clusters(vectors, 50, seed=0))
    monkeypatch.setattr(_two_means, "SAMPLE", 300)
    actual = balanced_clusters(vectors, 50, seed=0)
    assert np.bincount(actual).tolist() == [50] * 30
    assert similarity(vectors, actual) > 0.95 * full


def test_same_seed_same_clusters_for_any_number_of_threads(monkeypatch):
    monkeypatch.setattr(_two_means, "SAMPLE", 150)
    vectors, _ = blobs(10, 60, noise=0.8)
    threads = torch.get_num_threads()
    try:
        answers = []
        for number in (1, 2, 2):
            torch.set_num_threads(number)
            answers.append(balanced_clusters(vectors, 64, seed=3))
    finally:
        torch.set_num_threads(threads)
    assert np.array_equal(answers[0], answers[1])
    assert np.array_equal(answers[0], answers[2])
    assert not np.array_equal(answers[0], balanced_clusters(vectors, 64, seed=4))


def test_length_of_vectors_does_not_matter():
    vectors, _ = blobs(10, 20)
    scaled = vectors * torch.from_numpy(2.0 ** np.random.default_rng(0).integers(-5, 6, (200, 1))).float()
    assert np.array_equal(balanced_clusters(vectors, 20, seed=0), balanced_clusters(scaled, 20, seed=0))


def test_types_and_input_untouched():
    vectors, _ = blobs(4, 10)
    before = vectors.clone()
    actual = balanced_clusters(vectors, 10, seed=0)
    assert torch.equal(vectors, before)
    assert np.array_equal(actual, balanced_clusters(vectors.numpy(), 10, seed=0))
    assert np.bincount(balanced_clusters(vectors.half(), 10, seed=0)).tolist() == [10] * 4
    assert np.array_equal(actual, balanced_clusters(vectors.clone().requires_grad_(), 10, seed=0))


@pytest.mark.parametrize("vectors", [torch.ones(30, 3), torch.zeros(30, 3), torch.cat([torch.eye(3)] * 10)])
def test_equal_and_zero_vectors_still_give_equal_sizes(vectors):
    assert np.bincount(balanced_clusters(vectors, 7, seed=0)).tolist() == [6] * 5


def test_edges():
    assert balanced_clusters(torch.empty(0, 3), 4, seed=0).tolist() == []
    assert balanced_clusters(torch.randn(5, 3), 5, seed=0).tolist() == [0] * 5
    assert sorted(balanced_clusters(torch.randn(5, 3), 1, seed=0).tolist()) == [0, 1, 2, 3, 4]


def test_mistakes():
    with pytest.raises(DataError, match="NaN"):
        balanced_clusters(torch.tensor([[1.0], [float("nan")]]), 1, seed=0)
    with pytest.raises(DataError, match="matrix"):
        balanced_clusters(torch.ones(3), 1, seed=0)
    with pytest.raises(SettingError, match="size of a cluster"):
        balanced_clusters(torch.ones(3, 1), 0, seed=0)
