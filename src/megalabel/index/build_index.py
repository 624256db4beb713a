"""Build an index of a given kind, and load a saved one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

from megalabel.documents import reads_saved
from megalabel.errors import DataError, SettingError, nearest
from megalabel.index._store import read_kind
from megalabel.index.beam import BeamIndex
from megalabel.index.engines.index import ENGINES, EngineIndex
from megalabel.index.exact import ExactIndex
from megalabel.index.hnsw import HnswIndex
from megalabel.index.ivf import IvfIndex

if TYPE_CHECKING:
    from os import PathLike

    from torch import Tensor

__all__ = ["KINDS", "AnyIndex", "build_index", "check_kind", "load_index"]

AnyIndex: TypeAlias = ExactIndex | HnswIndex | IvfIndex | BeamIndex

KINDS: dict[str, tuple[str, ...]] = {  # and the settings each takes
    "exact": (),
    "hnsw": ("M", "ef_construction", "ef_search"),
    "ivf": ("nlist", "nprobe", "pq", "rerank"),
    "beam": ("leaf", "branches", "beam"),
}


def build_index(vectors: Tensor, kind: str = "exact", *, seed: int = 0, **settings: Any) -> AnyIndex:
    """Build an index over label vectors [L, d]: ``exact``, ``hnsw``, ``ivf`` or ``beam``, with settings of that kind.

    The same vectors, settings, seed and number of threads give the same index, bit for bit.

    >>> import torch
    >>> build_index(torch.eye(3), "ivf", nlist=2).search(torch.eye(3)[1:2], k=1).ids.tolist()
    [[1]]
    """
    check_kind(kind, settings)
    if kind == "hnsw":
        return HnswIndex.build(vectors, seed=seed, **settings)
    if kind == "ivf":
        return IvfIndex.build(vectors, seed=seed, **settings)
    if kind == "beam":
        return BeamIndex.build(vectors, seed=seed, **settings)
    return ExactIndex(vectors)


def check_kind(kind: str, settings: Iterable[str], *more: str) -> None:
    """Raise a SettingError for a kind that is neither known nor one of ``more``, or an unknown setting of the kind."""
    if kind not in (*KINDS, *more):
        raise SettingError(f"there is no index of kind {kind!r}", remedy=nearest(kind, [*KINDS, *more]))
    known = KINDS.get(kind) or ENGINES.get(kind, ())
    for name in settings:
        if kind not in (*KINDS, *ENGINES):
            raise SettingError(f"{kind} takes no {name}", remedy="name the kind of index")
        if name not in known:
            remedy = nearest(name, known) if known else "leave it out"
            raise SettingError(f"an index of kind {kind} has no setting {name!r}", remedy=remedy)


@reads_saved
def load_index(folder: str | PathLike[str]) -> AnyIndex | EngineIndex:
    """Read an index that ``save`` wrote, of any kind, mapped into memory.

    Every file is checked against the size and hash it was saved with; a missing or damaged
    file, or one that is not an index, raises a DataError.

    >>> import tempfile, torch
    >>> folder = tempfile.mkdtemp() + "/index"
    >>> IvfIndex.build(torch.eye(40)).save(folder)
    >>> load_index(folder).search(torch.eye(40)[7:8], k=1).ids.tolist()
    [[7]]
    """
    kind = read_kind(folder)
    known: dict[str, type[AnyIndex | EngineIndex]] = {
        "exact": ExactIndex,
        "hnsw": HnswIndex,
        "ivf": IvfIndex,
        "beam": BeamIndex,
        **dict.fromkeys(ENGINES, EngineIndex),
    }
    if kind not in known:
        raise DataError(f"this index is of the unknown kind {kind!r}", path=folder, remedy="update megalabel")
    return known[kind].load(folder)
