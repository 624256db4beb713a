"""Batching: which rows come together, and which labels they are trained against.

An order gives the rows of every batch of an epoch, a pool builder turns them into a
:class:`megalabel.types.Batch`. All of it is settings and plain arrays: the same seed,
epoch and step give the same batch.
"""

from __future__ import annotations

from megalabel.batching._random import generator
from megalabel.batching.candidates import CandidateBuilder
from megalabel.batching.clusters import balanced_clusters
from megalabel.batching.log_q import EntryChance, LogQ, RunningLogQ
from megalabel.batching.negatives import Mined, Negatives, Uniform, mine
from megalabel.batching.order import ByLabel, Clustered, Order, Shuffled
from megalabel.batching.pool import PoolBuilder
from megalabel.batching.positives import All, One, Picker, Some

__all__ = [
    "All",
    "ByLabel",
    "CandidateBuilder",
    "Clustered",
    "EntryChance",
    "LogQ",
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
]
