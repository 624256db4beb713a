"""Softmax cross-entropy that is content once a positive has its share."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch
from torch.nn.functional import relu

from megalabel.losses.base import require, spread
from megalabel.losses.bce import LossWithBCE
from megalabel.losses.softmax import Softmax
from megalabel.settings import PositiveFloat

if TYPE_CHECKING:
    from torch import Tensor

    from megalabel.types import Positives


class TruncatedSoftmaxSettings(LossWithBCE):
    """Settings of :class:`TruncatedSoftmax`."""

    kind: Literal["truncated_softmax"]
    scale: PositiveFloat = 10.0  # about how many labels of a row can have a probability of 1

    def row_loss(self) -> TruncatedSoftmax:
        """Return the loss of this kind."""
        return TruncatedSoftmax(scale=self.scale)

    def log_probabilities(self, scores: Tensor) -> Tensor:
        """Return log min(1, scale x softmax) of the scores of all labels [B, P]."""
        return (torch.log_softmax(scores, dim=1) + math.log(self.scale)).clamp_max(0.0)


@dataclass(frozen=True)
class TruncatedSoftmax(Softmax):
    r"""Give each positive a share of the probability mass, and no more than it needs.

    .. math::
        p_{il} = \min(1, \alpha\, e^{s_{il}} / \sum_m e^{s_{im}}), \qquad
        \ell_i = - \sum_{p \in P_i} a_{ip} \log p_{ip}
                = \sum_p a_{ip} \max(0, \log \sum_m e^{s_{im}} - s_{ip} - \log \alpha)

    with a = y / sum(y). About alpha labels of a row can reach p = 1, where their gradient ends; with alpha = 1 it is
    :class:`Softmax`. ELIAS (Gupta et al., NeurIPS 2022) scores clusters so, with alpha = 10, and trains them by the
    positives alone.

    Rows without positives give 0.

    Example:
        >>> import torch
        >>> from megalabel.losses import TruncatedSoftmax
        >>> scores = torch.tensor([[2.0, 0.5, -1.0, 1.0, 0.0]])
        >>> round(TruncatedSoftmax(scale=2.0)(scores, torch.tensor([[1.0, 0, 0, 0, 1]])).item(), 6)
        0.940645
    """

    scale: float = 10.0

    lowers_negatives = True

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.scale > 0, f"scale is {self.scale}", "choose a number above 0")

    def _from_lse(self, lse: Tensor, positives: Positives, share: Tensor) -> Tensor:
        return share * relu(spread(positives, lse) - positives.scores - math.log(self.scale))
