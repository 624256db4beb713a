"""Multi-label losses on a block of scores, and a streamed form that never holds the block.

Every loss is called as ``loss(scores [B, P], targets, mask=None)`` and never sees a model.
``streamed(loss, queries, labels, targets)`` computes the same value and gradients from the
two sides of the scores, in memory that does not grow with B x P.
"""

from __future__ import annotations

from megalabel.losses.bce import BCE
from megalabel.losses.decoupled_softmax import DecoupledSoftmax
from megalabel.losses.probabilistic_contrastive import ProbabilisticContrastive
from megalabel.losses.soft_top_k import SoftTopK
from megalabel.losses.softmax import Softmax
from megalabel.losses.squared_hinge import SquaredHinge
from megalabel.losses.streaming.streamed import streamed
from megalabel.losses.sum import Sum
from megalabel.losses.sup_con import SupCon
from megalabel.losses.symmetric import Symmetric, on_candidates
from megalabel.losses.triplet import Triplet
from megalabel.losses.truncated_softmax import TruncatedSoftmax

__all__ = [
    "BCE",
    "DecoupledSoftmax",
    "ProbabilisticContrastive",
    "SoftTopK",
    "Softmax",
    "SquaredHinge",
    "Sum",
    "SupCon",
    "Symmetric",
    "Triplet",
    "TruncatedSoftmax",
    "on_candidates",
    "streamed",
]
