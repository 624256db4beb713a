"""Search for the k best labels of query vectors, exactly or approximately."""

from megalabel.index.beam import BeamIndex
from megalabel.index.build_index import AnyIndex, build_index, load_index
from megalabel.index.choose_index import Choice, choose_index
from megalabel.index.engines import EngineIndex
from megalabel.index.exact import ExactIndex
from megalabel.index.hnsw import HnswIndex
from megalabel.index.ivf import IvfIndex
from megalabel.index.recall import recall

__all__ = [
    "AnyIndex",
    "BeamIndex",
    "Choice",
    "EngineIndex",
    "ExactIndex",
    "HnswIndex",
    "IvfIndex",
    "build_index",
    "choose_index",
    "load_index",
    "recall",
]
