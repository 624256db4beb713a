"""Training: the loop and what makes large steps fit in memory."""

from megalabel.training.gradcache import GradientCache

__all__ = ["GradientCache"]
