"""Label spaces: targets of groups, relations between spaces, growth, files."""

from dataclasses import dataclass

import numpy as np
import pytest
from scipy import sparse

import megalabel as ml
from megalabel.errors import DataError
from megalabel.graphs import normalise, partition, pifa, random_walk
from megalabel.network.spaces import LabelSpace, PartitionSettings, build_spaces, group_dataset, load_spaces

MEMBERS = sparse.csr_matrix(np.array([[1, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 1]], dtype=np.float32))


@dataclass
class Sources:
    """Vectors of points and label texts, and n-grams of points."""

    targets: sparse.csr_matrix
    vectors: np.ndarray
    seed: int = 0

    def points(self):
        return self.vectors

    def texts(self):
        return np.random.default_rng(9).normal(size=(self.targets.shape[1], 6)).astype(np.float32)

    def ngrams(self):
        return sparse.csr_matrix(np.maximum(self.vectors, 0))


def sources(labels=17, points=50, seed=0):
    rng = np.random.default_rng(3)
    targets = sparse.csr_matrix((rng.random((points, labels)) < 0.2).astype(np.float32))
    return Sources(targets, rng.normal(size=(points, 8)).astype(np.float32), seed)


def test_targets_of_groups_follow_from_those_of_labels():
    targets = sparse.random(20, 4, density=0.4, random_state=1, dtype=np.float32, format="csr")
    space = LabelSpace("clusters", 3, MEMBERS)
    expected = np.zeros((20, 3), dtype=np.float32)
    for row, label in zip(*targets.nonzero(), strict=True):
        for group in range(3):
            expected[row, group] += targets[row, label] * MEMBERS[group, label]
    assert np.allclose(space.targets(targets).toarray(), np.minimum(expected, 1))
    assert space.targets(targets).has_sorted_indices
    assert LabelSpace("labels", 4).targets(targets) is targets


def test_relation_between_levels():
    coarse = LabelSpace("coarse", 2, sparse.csr_matrix(np.array([[1, 1, 1, 0], [0, 0, 0, 1]], dtype=np.float32)))
    fine, labels = LabelSpace("fine", 3, MEMBERS), LabelSpace("labels", 4)
    assert coarse.relation(fine).toarray().tolist() == [[1, 1, 0], [0, 0, 1]]
    assert fine.relation(labels).toarray().tolist() == MEMBERS.toarray().tolist()
    assert fine.relation(fine) is None
    with pytest.raises(DataError, match="coarser"):
        labels.relation(fine)


def test_the_graph_over_groups_is_that_of_walks_over_them_and_is_saved(tmp_path):
    targets = sparse.csr_matrix(np.array([[1, 1, 0, 0], [0, 0, 1, 1], [0, 1, 0, 1]], dtype=np.float32))
    space = LabelSpace("clusters", 3, MEMBERS)
    graphed = space.with_graph(targets, seed=4)
    expected = normalise(random_walk(space.targets(targets), seed=4))
    assert (graphed.graph != expected).nnz == 0 and graphed.graph.shape == (3, 3)
    grown = graphed.grown(np.array([2, 0]))
    grown.save(tmp_path / "clusters")
    again = load_spaces(tmp_path, ["clusters"], 6)["clusters"]
    assert (again.graph != expected).nnz == 0 and again.group_of.tolist() == grown.group_of.tolist()


def test_groups_of_labels_grow_and_are_saved(tmp_path):
    space = LabelSpace("clusters", 3, MEMBERS)
    assert space.group_of.tolist() == [0, 1, 0, 2]
    grown = space.grown(np.array([2, 0]))
    assert grown.group_of.tolist() == [0, 1, 0, 2, 2, 0]
    grown.save(tmp_path / "clusters")
    again = load_spaces(tmp_path, ["clusters"], 6)
    assert again["clusters"].group_of.tolist() == grown.group_of.tolist()
    assert again["labels"].size == 6
    with pytest.raises(DataError, match="6 labels, not 7"):
        load_spaces(tmp_path, ["clusters"], 7)
    missing = sparse.csr_matrix(np.array([[1, 0, 0], [0, 1, 0]], dtype=np.float32))
    with pytest.raises(DataError, match="leaves out 1 label"):
        LabelSpace("clusters", 2, missing).group_of  # noqa: B018


@pytest.mark.parametrize("features", ["points", "graph", "texts", "ngrams"])
def test_partition_covers_all_labels_in_groups_of_similar_size(features):
    space = PartitionSettings(size=5, features=features).build("clusters", sources())
    again = PartitionSettings(size=5, features=features).build("clusters", sources())
    assert sorted(np.bincount(space.group_of, minlength=5)) == [3, 3, 3, 4, 4]
    assert np.array_equal(space.group_of, again.group_of)
    assert PartitionSettings(size=99, features=features).build("clusters", sources()).size == 17


def test_features_of_labels():
    source = sources()
    means = pifa(source.points(), source.targets)
    walk = normalise(random_walk(source.targets, seed=0))
    expected = {
        "points": means,
        "graph": walk @ means,
        "texts": source.texts(),
        "ngrams": pifa(source.ngrams(), source.targets),
    }
    for features, vectors in expected.items():
        space = PartitionSettings(size=4, features=features).build("clusters", source)
        assert np.array_equal(space.group_of, partition(vectors, clusters=4, seed=0)), features


@pytest.mark.parametrize(
    ("labels", "sizes"), [(17, (2, 4, 8)), (100, (3, 7, 30)), (1000, (2, 16, 64)), (6, (2, 5, 40))]
)
def test_levels_nest_and_are_balanced(labels, sizes):
    first, second, third = sizes
    levels = {
        "coarse": PartitionSettings(size=first, of="middle"),
        "middle": PartitionSettings(size=second, of="fine"),
        "fine": PartitionSettings(size=third),
    }
    spaces = build_spaces(levels, sources(labels))
    assert list(build_spaces(levels, sources(labels))["coarse"].group_of) == list(spaces["coarse"].group_of)
    for coarser, finer in (("coarse", "middle"), ("middle", "fine")):
        relation = spaces[coarser].relation(spaces[finer])
        assert relation.shape == (spaces[coarser].size, spaces[finer].size)
        assert relation.getnnz(axis=0).tolist() == [1] * spaces[finer].size  # every group has one parent
        assert relation.getnnz(axis=1).min() >= 1
        counts = np.bincount(spaces[coarser].group_of, minlength=spaces[coarser].size)
        assert counts.sum() == labels
        assert counts.max() - counts.min() <= 2 * np.bincount(spaces[finer].group_of).max()


def test_powers_of_two_are_levels_of_one_tree():
    """Joining the clusters of the finest level gives what a partition of that size gives."""
    fine, coarse = PartitionSettings(size=64), PartitionSettings(size=8)
    joined = PartitionSettings(size=8, of="fine")
    spaces = build_spaces({"fine": fine, "joined": joined, "coarse": coarse}, sources(1000))
    assert np.array_equal(spaces["joined"].group_of, spaces["coarse"].group_of)


def test_joined_clusters_have_no_features_of_their_own():
    with pytest.raises(ValueError, match="features has no effect"):
        PartitionSettings(size=3, of="fine", features="texts")


def cluster_labels(data, vectors, size, seed):
    """Return the data set with clusters of labels for labels, by the vectors of the train points."""
    space = PartitionSettings(size=size).build("clusters", Sources(data.train.targets, vectors, seed))
    return group_dataset(data, space)


def test_points_keep_their_clusters():
    data = ml.load("synthetic:points=200,labels=30,seed=1")
    vectors = np.random.default_rng(0).normal(size=(len(data.train), 8)).astype(np.float32)
    fewer = cluster_labels(data, vectors, 7, seed=3)
    assert len(fewer.labels) == 7
    assert list(fewer.train.texts) == list(data.train.texts)
    again = cluster_labels(data, vectors, 7, seed=3)
    for split in ("train", "test"):
        targets = fewer.split(split).targets
        assert (targets != again.split(split).targets).nnz == 0
        assert targets.data.max() <= 1 and targets.data.min() > 0
        assert ((np.diff(targets.indptr) > 0) == (np.diff(data.split(split).targets.indptr) > 0)).all()
    assert fewer.counts.sum() == fewer.train.targets.nnz


def test_the_text_of_a_group_is_the_texts_of_its_labels():
    data = ml.load("synthetic:points=200,labels=30,seed=1")
    members = sparse.csr_matrix(np.eye(7, dtype=np.float32)[:, np.arange(30) % 7])
    grouped = group_dataset(data, LabelSpace("groups", 7, members))
    for group, text in enumerate(grouped.labels.texts):
        assert text == " ".join(data.labels.texts[label] for label in range(30) if label % 7 == group)


def test_soft_targets_add_up_to_at_most_one():
    data = ml.Dataset.from_lists(train=[("a", [0, 1]), ("b", [2])], test=[("c", [0])], labels=["x", "y", "z"])
    soft = data.train.targets.copy()
    soft.data[:] = [0.25, 0.5, 0.9]
    data = data.replace(train=type(data.train)(data.train.texts, soft, data.train.uids))
    one = cluster_labels(data, np.eye(2, dtype=np.float32), 1, seed=0)
    assert one.train.targets.toarray().ravel().tolist() == [0.75, np.float32(0.9)]


def test_no_more_clusters_than_labels():
    data = ml.load("synthetic:points=60,labels=10,seed=1")
    clusters = cluster_labels(data, np.ones((len(data.train), 4), dtype=np.float32), 4096, seed=0)
    assert len(clusters.labels) == 10
    assert clusters.train.targets.nnz == data.train.targets.nnz
