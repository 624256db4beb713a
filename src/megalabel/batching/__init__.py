"""Batching: which rows share a step, and which labels they are trained against.

An order gives the rows of every batch of an epoch, a builder turns them into a
:class:`megalabel.types.Batch`. All of it is settings and plain arrays: the same seed,
epoch and step give the same batch. Names load on first use: settings need no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from megalabel.batching._random import generator
    from megalabel.batching.bm25 import mine_bm25
    from megalabel.batching.candidates import CandidateBuilder
    from megalabel.batching.clusters import balanced_clusters
    from megalabel.batching.log_q import EntryChance, RunningLogQ
    from megalabel.batching.negatives import Mined, Negatives, Uniform, mine
    from megalabel.batching.order import ByLabel, Clustered, Order, Shuffled
    from megalabel.batching.pool import PoolBuilder
    from megalabel.batching.positives import All, One, Picker, Some

_HOME = {
    "All": "positives",
    "ByLabel": "order",
    "CandidateBuilder": "candidates",
    "Clustered": "order",
    "EntryChance": "log_q",
    "Mined": "negatives",
    "Negatives": "negatives",
    "One": "positives",
    "Order": "order",
    "Picker": "positives",
    "PoolBuilder": "pool",
    "RunningLogQ": "log_q",
    "Shuffled": "order",
    "Some": "positives",
    "Uniform": "negatives",
    "balanced_clusters": "clusters",
    "generator": "_random",
    "mine": "negatives",
    "mine_bm25": "bm25",
}

__all__ = [
    "All",
    "ByLabel",
    "CandidateBuilder",
    "Clustered",
    "EntryChance",
    "Mined",
    "Negatives",
    "One",
    "Order",
    "Picker",
    "PoolBuilder",
    "RunningLogQ",
    "Shuffled",
    "Some",
    "Uniform",
    "balanced_clusters",
    "generator",
    "mine",
    "mine_bm25",
]


def __getattr__(name: str) -> object:
    if name in _HOME:
        return getattr(import_module(f"megalabel.batching.{_HOME[name]}"), name)
    raise AttributeError(f"module 'megalabel.batching' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
