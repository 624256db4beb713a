"""What heads trained by steps share: the two sides of a score, and the parts they are made of."""

from megalabel.heads.dense.candidates import CandidateSettings
from megalabel.heads.dense.head import DenseHead, DenseSettings, LabelTextSettings, Points

__all__ = ["CandidateSettings", "DenseHead", "DenseSettings", "LabelTextSettings", "Points"]
