"""Graphs on disk, tied to the labels they were built from."""

from __future__ import annotations

import hashlib
import zipfile
from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

from megalabel.errors import DataError
from megalabel.files import open_bytes, writing
from megalabel.graphs._checks import as_graph

if TYPE_CHECKING:
    from os import PathLike

    from megalabel.data.dataset import Labels

__all__ = ["load_graph", "save_graph"]

_MARK = "megalabel graph 1"
_FIELDS = ("mark", "labels", "hash", "indptr", "indices", "data")


def save_graph(graph: sparse.csr_matrix, path: str | PathLike[str], labels: Labels) -> None:
    """Write a graph with the number of its labels and a hash of their uids and texts, completely or not at all.

    The file is a numpy archive without pickle; the same graph gives the same bytes.

    Args:
        graph: [L, L], weights not negative.
        path: file to write; an old one is replaced.
        labels: the L labels of the data set the graph was made from.
    """
    matrix = as_graph(graph)
    if matrix.shape[0] != len(labels):
        raise DataError(f"the graph has {matrix.shape[0]} labels, the data set has {len(labels)}")
    with writing(path) as out:
        np.savez(
            out,
            mark=np.frombuffer(_MARK.encode(), dtype=np.uint8),
            labels=np.array([len(labels)], dtype=np.int64),
            hash=np.frombuffer(_hash(labels).encode(), dtype=np.uint8),
            indptr=matrix.indptr.astype(np.int64),
            indices=matrix.indices,
            data=matrix.data,
        )


def load_graph(path: str | PathLike[str], labels: Labels) -> sparse.csr_matrix:
    """Read a graph that :func:`save_graph` wrote for the same labels.

    A graph of another data set is refused, with what differs: the number of labels or
    their hash. A damaged file, a file that is not a graph and an empty graph are refused too.

    Args:
        path: file to read.
        labels: the labels of the current data set.

    Returns:
        [L, L] float32, columns sorted.
    """
    fields = _read(path)
    remedy = "make the graph again from this data set"
    count = int(fields["labels"][0]) if fields["labels"].size == 1 else -1
    if count != len(labels):
        what = f"this graph is of another data set: it has {count} labels, the data set has {len(labels)}"
        raise DataError(what, path=path, remedy=remedy)
    theirs, ours = _text(fields["hash"]), _hash(labels)
    if theirs != ours:
        what = f"this graph is of another data set: its labels have the hash {theirs[:12]}, the current {ours[:12]}"
        raise DataError(what, path=path, remedy=remedy)
    return _graph(fields, count, path)


def _read(path: str | PathLike[str]) -> dict[str, np.ndarray]:
    with open_bytes(path) as stream:
        try:
            with np.load(stream, allow_pickle=False) as archive:
                fields = {name: archive[name] for name in _FIELDS}
            if _text(fields["mark"]) != _MARK:
                raise ValueError
        except (ValueError, KeyError, TypeError, AttributeError, EOFError, zipfile.BadZipFile) as error:
            remedy = "write one with save_graph or megalabel graph --out"
            raise DataError("this is not a graph file, or it is damaged", path=path, remedy=remedy) from error
    return fields


def _graph(fields: dict[str, np.ndarray], count: int, path: str | PathLike[str]) -> sparse.csr_matrix:
    """Return the matrix after checking that no index is out of range."""
    indptr, indices, data = fields["indptr"], fields["indices"], fields["data"]
    if len(data) == 0:
        raise DataError("this graph is empty, no label has a neighbour", path=path)
    valid = (
        indptr.shape == (count + 1,)
        and indices.shape == data.shape == (int(indptr[-1]),)
        and indptr[0] == 0
        and bool(np.all(np.diff(indptr) >= 0))
        and indices.dtype.kind == "i"
        and indices.min() >= 0
        and indices.max() < count
    )
    if not valid:
        raise DataError("this graph file is damaged", path=path, remedy="build the graph again")
    graph = as_graph(sparse.csr_matrix((data, indices, indptr), shape=(count, count)))
    graph.sort_indices()
    return graph


def _text(array: np.ndarray) -> str:
    return array.tobytes().decode("utf-8", "replace")


def _hash(labels: Labels) -> str:
    """Return the SHA-256 of all uids and texts, each preceded by its length, so that the bytes are unambiguous."""
    digest = hashlib.sha256()
    for uid, text in zip(labels.uids, labels.texts, strict=True):
        name, content = uid.encode("utf-8", "surrogatepass"), text.encode("utf-8", "surrogatepass")
        digest.update(b"%d %d " % (len(name), len(content)) + name + content)
    return digest.hexdigest()
