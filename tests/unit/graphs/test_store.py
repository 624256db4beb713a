"""Saved graphs: exact round trip, and a one-line error for any other file."""

import io

import numpy as np
import pytest
from scipy import sparse

from megalabel.data.dataset import Labels
from megalabel.errors import DataError, WriteError
from megalabel.graphs import load_graph, save_graph

LABELS = Labels(["red", "blau, hell", "verte é"], ["r", "b", "é"])
GRAPH = sparse.csr_matrix(np.float32([[1, 0.5, 0], [0.1, 1, 0], [0, 0, 1]]))


def test_round_trip_is_exact_and_repeatable(tmp_path):
    save_graph(GRAPH, tmp_path / "one.npz", LABELS)
    save_graph(GRAPH, tmp_path / "two.npz", LABELS)
    graph = load_graph(tmp_path / "one.npz", LABELS)
    assert np.array_equal(graph.toarray(), GRAPH.toarray())
    assert graph.dtype == np.float32
    assert graph.has_sorted_indices
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "two.npz").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.npz", "two.npz"]


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (Labels(["red", "blue"], ["r", "b"]), "it has 3 labels, the data set has 2"),
        (Labels(["red", "blau, hell", "verte"], ["r", "b", "é"]), "hash"),
        (Labels(["red", "blau, hell", "verte é"], ["r", "b", "e"]), "hash"),
        (Labels(["blau, hell", "red", "verte é"], ["b", "r", "é"]), "hash"),
        (Labels(["ed", "blau, hell", "verte é"], ["rr", "b", "é"]), "hash"),
    ],
)
def test_graph_of_another_set_is_refused(tmp_path, other, words):
    save_graph(GRAPH, tmp_path / "g.npz", LABELS)
    with pytest.raises(DataError, match=words) as caught:
        load_graph(tmp_path / "g.npz", other)
    assert "\n" not in str(caught.value)


def test_files_that_are_not_graphs(tmp_path):
    path = tmp_path / "g.npz"
    save_graph(GRAPH, path, LABELS)
    good = path.read_bytes()
    stream = io.BytesIO()
    np.savez(stream, mark=np.zeros(3))
    objects = io.BytesIO()
    np.savez(objects, mark=np.array([{}], dtype=object), allow_pickle=True)
    plain = io.BytesIO()
    np.save(plain, np.zeros(3))
    for content in (b"hello", good[:-30], good[:200], stream.getvalue(), objects.getvalue(), plain.getvalue(), b""):
        path.write_bytes(content)
        with pytest.raises(DataError, match="not a graph file"):
            load_graph(path, LABELS)
    with pytest.raises(DataError, match="no such file"):
        load_graph(tmp_path / "missing.npz", LABELS)


@pytest.mark.parametrize(
    "change",
    [
        {"indices": np.array([0, 1, 0, 1, 9], np.int32)},
        {"indices": np.array([0, 1, 0, 1, -1], np.int32)},
        {"indices": np.array([0, 1, 0, 1, 2.0])},
        {"indices": np.array([0, 1], np.int32)},
        {"indptr": np.array([0, 4, 2, 5])},
        {"indptr": np.array([0, 2, 5])},
        {"indptr": np.array([1, 2, 4, 5])},
        {"data": np.array([1, 2, np.nan, 1, 1], np.float32)},
        {"data": np.ones((5, 1), np.float32)},
    ],
)
def test_damaged_graphs_never_reach_the_caller(tmp_path, change):
    path = tmp_path / "g.npz"
    save_graph(GRAPH, path, LABELS)
    with np.load(path) as archive:
        fields = dict(archive)
    np.savez(path, **{**fields, **change})
    with pytest.raises(DataError, match=r"damaged|finite"):
        load_graph(path, LABELS)


def test_one_bit_of_a_weight_is_noticed(tmp_path):
    path = tmp_path / "g.npz"
    save_graph(GRAPH, path, LABELS)
    content = bytearray(path.read_bytes())
    place = content.index(GRAPH.data.astype(np.float32).tobytes()) + 1
    content[place] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match="damaged"):
        load_graph(path, LABELS)


def test_empty_graph_and_wrong_size(tmp_path):
    save_graph(sparse.csr_matrix((3, 3)), tmp_path / "g.npz", LABELS)
    with pytest.raises(DataError, match="empty"):
        load_graph(tmp_path / "g.npz", LABELS)
    with pytest.raises(DataError, match="4 labels"):
        save_graph(sparse.eye(4, format="csr"), tmp_path / "h.npz", LABELS)
    with pytest.raises(WriteError):
        save_graph(GRAPH, tmp_path / "no" / "such" / "folder.npz", LABELS)
