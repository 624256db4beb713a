"""Label graphs: which labels go together, by co-occurrence or random walks, and clusters of similar labels.

A graph is a csr matrix [L, L], float32, columns sorted: row j holds the neighbours of
label j, including itself. :func:`cooccurrence` and :func:`random_walk` build one from the
targets Y [N, L]; :func:`partition` groups labels by their vectors. Needs numpy and scipy
only; dense vectors are partitioned by torch, which is imported on first use.
"""

from megalabel.graphs.cooccurrence import cooccurrence
from megalabel.graphs.label_graph import label_graph
from megalabel.graphs.normalise import normalise
from megalabel.graphs.partition import partition, partition_tree
from megalabel.graphs.pifa import pifa
from megalabel.graphs.prune import prune
from megalabel.graphs.random_walk import random_walk, walk_targets
from megalabel.graphs.store import load_graph, save_graph

__all__ = [
    "cooccurrence",
    "label_graph",
    "load_graph",
    "normalise",
    "partition",
    "partition_tree",
    "pifa",
    "prune",
    "random_walk",
    "save_graph",
    "walk_targets",
]
