"""Heads: how texts become scores of labels. One file is one kind; :mod:`megalabel.heads.head` has the life cycle."""

from megalabel.heads.dense import DenseHead, DenseSettings
from megalabel.heads.dense.temperature import Temperature
from megalabel.heads.free import FreeHead, FreeSettings
from megalabel.heads.gated import GatedHead, GatedSettings
from megalabel.heads.graph import GraphHead, GraphSettings
from megalabel.heads.head import HEADS, FittedHead, FittedSettings, HeadSettings, register
from megalabel.heads.linear import Linear
from megalabel.heads.linked import LinkedHead, LinkedSettings
from megalabel.heads.memory import Memory
from megalabel.heads.neighbours import NeighboursHead, NeighboursSettings
from megalabel.heads.overlap import Overlap
from megalabel.heads.shared import SharedHead, SharedSettings
from megalabel.heads.sparse.hard_negatives import hard_negatives
from megalabel.heads.text import TextHead, TextSettings
from megalabel.heads.text_free import TextFreeHead, TextFreeSettings
from megalabel.heads.tree import Tree

__all__ = [
    "HEADS",
    "DenseHead",
    "DenseSettings",
    "FittedHead",
    "FittedSettings",
    "FreeHead",
    "FreeSettings",
    "GatedHead",
    "GatedSettings",
    "GraphHead",
    "GraphSettings",
    "HeadSettings",
    "Linear",
    "LinkedHead",
    "LinkedSettings",
    "Memory",
    "NeighboursHead",
    "NeighboursSettings",
    "Overlap",
    "SharedHead",
    "SharedSettings",
    "Temperature",
    "TextFreeHead",
    "TextFreeSettings",
    "TextHead",
    "TextSettings",
    "Tree",
    "hard_negatives",
    "register",
]
