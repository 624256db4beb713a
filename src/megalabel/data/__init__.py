"""Data sets: texts, label texts and the relevance between them, read from and written to many formats."""

from megalabel.data.dataset import Dataset, Labels, Split
from megalabel.data.hold_out import hold_out
from megalabel.data.load import load
from megalabel.data.save import save

__all__ = ["Dataset", "Labels", "Split", "hold_out", "load", "save"]
