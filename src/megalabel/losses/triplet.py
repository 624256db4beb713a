"""Triplet loss with online hard negatives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pydantic import PositiveInt
from torch.nn.functional import relu

from megalabel.losses.base import NONE, RowLoss, require, row_sum, shares, spread
from megalabel.losses.bce import LossWithBCE
from megalabel.losses.streaming.streams import TopStream
from megalabel.settings import PositiveFloat

if TYPE_CHECKING:
    from torch import Tensor

    from megalabel.ranks import Ranks
    from megalabel.types import Positives, Stream


class TripletSettings(LossWithBCE):
    """Settings of :class:`Triplet`."""

    kind: Literal["triplet"]
    margin: PositiveFloat = 0.3
    k: PositiveInt = 10  # hardest negatives of each row
    temperature: PositiveFloat = 0.1  # of their weights; that of the scores is the head's

    def row_loss(self) -> Triplet:
        """Return the loss of this kind."""
        return Triplet(margin=self.margin, k=self.k, temperature=self.temperature)

    def row_cost(self) -> tuple[int, int]:
        """Return one pass and one product: the gradient has a few cells."""
        return 1, 1


@dataclass(frozen=True)
class Triplet(RowLoss):
    r"""Keep each positive a margin above the k hardest negatives of its row, weighted by hardness.

    With H_i the k highest negatives of row i, and V_ip those of them that come within the
    margin of positive p,

    .. math::
        \ell_i = \sum_{p \in P_i} a_{ip} \sum_{n \in V_{ip}} \omega_{ipn} (s_{in} - s_{ip} + m), \qquad
        \omega_{ipn} = \frac{e^{s_{in} / \tau}}{\sum_{n' \in V_{ip}} e^{s_{in'} / \tau}}

    with a = y / sum(y). Dahiya et al. 2023, "NGAME: negative mining-aware mini-batching
    for extreme classification", in the form of its code: m = 0.3, k = 10, tau = 0.1. (The
    code also divides by k; that factor belongs to the learning rate.) With
    h = s_n - s_p + m and L_p the sum over V,

    .. math::
        \partial L_p / \partial s_p = -1 \text{ if } V_p \neq \emptyset \text{ else } 0, \qquad
        \partial L_p / \partial s_n = \omega_n (1 + (h_n - L_p) / \tau)

    The weights carry gradient, as in the code, so a negative far easier than the hardest may
    be pushed up a little while the hardest is pushed down.

    Takes cosines with temperature 1. A row without positives, or without a negative within
    the margin, gives 0. A row may have fewer than k negatives. Soft targets y in (0, 1] are
    weights y / sum(y). Among equal scores at rank k the choice is arbitrary.

    Example:
        >>> import torch
        >>> from megalabel.losses import Triplet
        >>> Triplet(k=1)(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[1.0, 0, 0]]))
        tensor(0.2000)
    """

    margin: float = 0.3
    k: int = 10
    temperature: float = 0.1

    raises_positives = True
    takes_log_q = False

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.k >= 1, f"k is {self.k}", "choose 1 negative or more")
        require(self.temperature > 0, f"temperature is {self.temperature}", "choose a number above 0")

    def begin(self, positives: Positives, ranks: Ranks) -> Stream:
        """Start the streamed form."""
        return TopStream(self, positives, ranks, self.k)

    def _rows(self, negatives: Tensor, positives: Positives) -> Tensor:
        top = negatives.topk(min(self.k, negatives.shape[1]), 1).values
        return row_sum(positives, self._from_top(top, positives, shares(positives))[0])

    def _from_top(self, top: Tensor, positives: Positives, share: Tensor) -> tuple[Tensor, Tensor]:
        hardest = spread(positives, top)
        gap = hardest - positives.scores[:, None] + self.margin
        violates = gap > 0
        logits = (hardest / self.temperature).masked_fill(~violates, NONE)
        logits = logits.masked_fill(~violates.any(1, keepdim=True), 0.0)
        terms = (logits.softmax(1) * relu(gap)).sum(1)
        return share * terms, top.new_zeros(top.shape)
