"""Decoupled softmax: each positive against the negatives only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from torch.nn.functional import softplus

from megalabel.losses.base import WEIGHTINGS, RowLoss, Weighting, choose, logsumexp, row_sum, shares, spread
from megalabel.losses.bce import FAR, LossWithBCE
from megalabel.losses.streaming.streams import LogSumExpStream

if TYPE_CHECKING:
    from torch import Tensor

    from megalabel.ranks import Ranks
    from megalabel.types import Positives, Stream


class DecoupledSoftmaxSettings(LossWithBCE):
    """Settings of :class:`DecoupledSoftmax`."""

    kind: Literal["decoupled_softmax"]
    positives: Weighting = "mean"  # weight of a soft target: y / sum(y), y / |P| or y

    def row_loss(self) -> DecoupledSoftmax:
        """Return the loss of this kind."""
        return DecoupledSoftmax(positives=self.positives)


@dataclass(frozen=True)
class DecoupledSoftmax(RowLoss):
    r"""Let each positive compete with the negatives of its row, never with the other positives.

    .. math::
        \ell_i = - \sum_{p \in P_i} a_{ip} \log \frac{e^{s_{ip}}}{e^{s_{ip}} + \sum_{n \notin P_i} e^{s_{in}}}
               = \sum_p a_{ip} \log(1 + e^{N_i - s_{ip}}), \qquad N_i = \log \sum_{n \notin P_i} e^{s_{in}}

    with q_p = sigma(s_p - N):

    .. math::
        \partial \ell_i / \partial s_p = -a_p (1 - q_p), \qquad
        \partial \ell_i / \partial s_n = e^{s_n - N} \sum_p a_p (1 - q_p)

    A positive is never pushed down: an easy positive saturates and leaves the gradient to the
    hard ones. Gupta et al. 2024, "Dual-encoders for extreme multi-label classification"
    (DEXML), equation 5. Equals :class:`Softmax` if each row has one positive. Differs
    from :class:`SupCon`, whose denominator keeps the other positives, and from DCL, which
    drops the positive itself.

    Soft targets y in (0, 1] are weights a on the positives. ``positives="mean"``: a = y / sum(y), so that all rows
    weigh the same. ``positives="count"``: ``a = y / |P|``, as the code of DEXML weights them, so that a row of doubtful
    targets counts less. ``positives="sum"``: a = y. With hard targets the first two are equal.

    Rows without positives or without negatives give 0. With ``log_q``, negatives enter as e^s / q
    (see :class:`Softmax`).

    Example:
        >>> import torch
        >>> from megalabel.losses import DecoupledSoftmax
        >>> scores = torch.tensor([[2.0, 0.5, -1.0, 1.0, 0.0]])
        >>> round(DecoupledSoftmax()(scores, torch.tensor([[1.0, 1, 0, 0, 1]])).item(), 6)
        0.937192
        >>> doubtful = torch.tensor([[0.5, 0.5, 0, 0, 0.5]])
        >>> [round(DecoupledSoftmax(positives=how)(scores, doubtful).item(), 6) for how in ("mean", "count")]
        [0.937192, 0.468596]
    """

    positives: str = "mean"

    raises_positives = True
    lowers_negatives = True

    def __post_init__(self) -> None:
        super().__post_init__()
        choose("positives", self.positives, WEIGHTINGS)

    def begin(self, positives: Positives, ranks: Ranks) -> Stream:
        """Start the streamed form."""
        return LogSumExpStream(self, positives, ranks, shares(positives, ranks, self.positives), inside=None)

    def _rows(self, negatives: Tensor, positives: Positives) -> Tensor:
        return row_sum(
            positives, self._from_lse(logsumexp(negatives), positives, shares(positives, how=self.positives))
        )

    def _from_lse(self, lse: Tensor, positives: Positives, share: Tensor) -> Tensor:
        return share * softplus(spread(positives, lse) - positives.scores, 1.0, FAR)
