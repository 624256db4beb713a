"""Softmax cross-entropy with several positives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch

from megalabel.losses.base import (
    WEIGHTINGS,
    RowLoss,
    Weighting,
    choose,
    logsumexp,
    row_logsumexp,
    row_sum,
    shares,
    spread,
)
from megalabel.losses.bce import LossWithBCE
from megalabel.losses.streaming.streams import LogSumExpStream
from megalabel.ranks import ALONE, Ranks

if TYPE_CHECKING:
    from torch import Tensor

    from megalabel.types import Positives, Stream


class SoftmaxSettings(LossWithBCE):
    """Settings of :class:`Softmax`."""

    kind: Literal["softmax"]
    positives: Weighting = "mean"  # of the positives of a row: PAL-N, PAL-N divided by their number, or PAL

    def row_loss(self) -> Softmax:
        """Return the loss of this kind."""
        return Softmax(positives=self.positives)


@dataclass(frozen=True)
class Softmax(RowLoss):
    r"""Give the positives the probability mass of a softmax over all labels; positives compete with each other.

    .. math::
        p_{il} = e^{s_{il}} / \sum_m e^{s_{im}}, \qquad
        \ell_i = - \sum_{p \in P_i} a_{ip} \log p_{ip}

        \partial \ell_i / \partial s_{il} = p_{il} \sum_p a_{ip} - a_{il}

    The names of the reductions are those of Menon et al. 2019, "Multilabel reductions:
    what is my loss optimising?":

    - ``positives="mean"``, pick-all-labels normalised (PAL-N): a = y / sum(y), the cross-entropy
      against the relevance scaled to sum to one; also the "outside" form of Khosla et
      al. 2020 (:class:`SupCon`);
    - ``positives="count"``: ``a = y / |P|``, the weighted loss of the code of DEXML (Gupta et al. 2024). Equal to
      ``mean`` on hard targets; a row whose targets are all small counts less, where ``mean`` gives every row the
      same weight;
    - ``positives="sum"``, pick-all-labels (PAL): a = y;
    - pick-one-label (POL): let the sampler draw one positive per row, with probability
      proportional to its relevance, and pass targets that hold only this positive. The
      others stay in the denominator, as in the paper; mask them to leave them out. With one
      positive both reductions agree, and the mean over draws is PAL-N.

    The gradient pushes a positive *down* if p > a: at the optimum all positives of a row
    are equally probable, however easy one of them is (Gupta et al. 2024, section 4).
    :class:`DecoupledSoftmax` avoids this; with one positive per row the two are equal.

    ``balanced=True`` is the variant of Kharbanda et al. 2024 (UniDEC) whose denominator holds
    the mean over positives instead of their sum: ``sum_neg e^s + (1/|P|) sum_pos e^s``.

    Rows without positives give 0; rows without negatives stay finite. ``log_q``:
    negatives enter the denominator as e^s / q, positives unchanged. If negative l is drawn with
    probability q_l and every positive of the row is in the pool, the denominator is
    an unbiased estimate of the denominator over all labels.

    Example:
        >>> import torch
        >>> from megalabel.losses import Softmax
        >>> scores, targets = torch.tensor([[2.0, 0.5, -1.0, 1.0, 0.0]]), torch.tensor([[1.0, 1, 0, 0, 1]])
        >>> round(Softmax()(scores, targets).item(), 6), round(Softmax(positives="sum")(scores, targets).item(), 6)
        (1.741105, 5.223314)
    """

    positives: str = "mean"
    balanced: bool = False

    lowers_negatives = True

    def __post_init__(self) -> None:
        super().__post_init__()
        choose("positives", self.positives, WEIGHTINGS)

    def begin(self, positives: Positives, ranks: Ranks) -> Stream:
        """Start the streamed form."""
        share = shares(positives, ranks, self.positives)
        return LogSumExpStream(self, positives, ranks, share, self._inside(positives, ranks))

    def _inside(self, positives: Positives, ranks: Ranks) -> Tensor:
        """Return the scores with which the positives enter the denominator."""
        if not self.balanced:
            return positives.scores
        count = ranks.sum(row_sum(positives, torch.ones_like(positives.values)))
        return positives.scores - spread(positives, count).log()

    def _rows(self, negatives: Tensor, positives: Positives) -> Tensor:
        inside = row_logsumexp(positives, self._inside(positives, ALONE))
        lse = logsumexp(torch.stack([logsumexp(negatives), inside], 1))
        return row_sum(positives, self._from_lse(lse, positives, shares(positives, how=self.positives)))

    def _from_lse(self, lse: Tensor, positives: Positives, share: Tensor) -> Tensor:
        return share * (spread(positives, lse) - positives.scores)
