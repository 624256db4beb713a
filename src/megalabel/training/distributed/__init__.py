"""Several processes that train together: how they join, share labels and queries, search and cluster."""

from megalabel.training.distributed.join import LostRankError, join

__all__ = ["LostRankError", "join"]
