"""A saved index, whatever its kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from megalabel.errors import DataError
from megalabel.index._store import read_kind
from megalabel.index.exact import ExactIndex
from megalabel.index.hnsw import HnswIndex
from megalabel.index.ivf import IvfIndex

if TYPE_CHECKING:
    from os import PathLike

__all__ = ["load_index"]


def load_index(folder: str | PathLike[str]) -> ExactIndex | HnswIndex | IvfIndex:
    """Read an index that ``save`` wrote, of whatever kind, mapped into memory.

    Every file is checked against the size and hash it was saved with; what is missing,
    damaged or no index at all is a DataError of one line.

    >>> import tempfile, torch
    >>> folder = tempfile.mkdtemp() + "/index"
    >>> IvfIndex.build(torch.eye(40)).save(folder)
    >>> load_index(folder).search(torch.eye(40)[7:8], k=1).ids.tolist()
    [[7]]
    """
    kind = read_kind(folder)
    known: dict[str, type[ExactIndex | HnswIndex | IvfIndex]] = {
        "exact": ExactIndex,
        "hnsw": HnswIndex,
        "ivf": IvfIndex,
    }
    if kind not in known:
        raise DataError(f"this index is of the unknown kind {kind!r}", path=folder, remedy="update megalabel")
    return known[kind].load(folder)
