"""Heads: how encoder vectors become the two sides of a score."""

from megalabel.heads.head import Head
from megalabel.heads.temperature import Temperature
from megalabel.heads.towers import FreeTower, TextFreeTower, TextTower

__all__ = ["FreeTower", "Head", "Temperature", "TextFreeTower", "TextTower"]
