"""Clusters of labels for labels."""

import numpy as np
from megalabel.training.cluster_labels import cluster_labels

import megalabel as ml


def test_points_keep_their_clusters():
    data = ml.load("synthetic:points=200,labels=30,seed=1")
    vectors = np.random.default_rng(0).normal(size=(len(data.train), 8)).astype(np.float32)
    fewer = cluster_labels(data, vectors, 7, seed=3)
    assert len(fewer.labels) == 7
    assert list(fewer.train.texts) == list(data.train.texts)
    again = cluster_labels(data, vectors, 7, seed=3)
    for split in ("train", "test"):
        found = fewer.split(split).targets
        assert (found != again.split(split).targets).nnz == 0
        assert found.data.max() <= 1 and found.data.min() > 0
        assert ((np.diff(found.indptr) > 0) == (np.diff(data.split(split).targets.indptr) > 0)).all()
    assert fewer.counts.sum() == fewer.train.targets.nnz


def test_soft_targets_add_up_to_at_most_one():
    data = ml.Dataset.from_lists(train=[("a", [0, 1]), ("b", [2])], test=[("c", [0])], labels=["x", "y", "z"])
    soft = data.train.targets.copy()
    soft.data[:] = [0.25, 0.5, 0.9]
    data = data.replace(train=type(data.train)(data.train.texts, soft, data.train.uids))
    one = cluster_labels(data, np.eye(2, dtype=np.float32), 1, seed=0)
    assert one.train.targets.toarray().ravel().tolist() == [0.75, np.float32(0.9)]


def test_no_more_clusters_than_labels():
    data = ml.load("synthetic:points=60,labels=10,seed=1")
    found = cluster_labels(data, np.ones((len(data.train), 4), dtype=np.float32), 4096, seed=0)
    assert len(found.labels) == 10
    assert found.train.targets.nnz == data.train.targets.nnz
