"""Heads: how encoder vectors become the two sides of a score, and heads that remember."""

from megalabel.heads.hard_negatives import hard_negatives
from megalabel.heads.head import Head
from megalabel.heads.linear import Linear
from megalabel.heads.memory import Memory
from megalabel.heads.overlap import Overlap
from megalabel.heads.temperature import Temperature
from megalabel.heads.towers import FreeTower, TextFreeTower, TextTower

__all__ = [
    "FreeTower",
    "Head",
    "Linear",
    "Memory",
    "Overlap",
    "Temperature",
    "TextFreeTower",
    "TextTower",
    "hard_negatives",
]
